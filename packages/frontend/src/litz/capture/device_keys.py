"""Devices in cache keys: by kind and relative to the graph's own, so that a key serves every GPU of a machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from litz.devices import CPU_KIND, GPU, functions_of, gpu, is_accelerator

_ORDINAL = re.compile(r"[A-Za-z_]\w*:\d+")
_ABOUT_DEVICES = (gpu.__name__, "torch.accelerator")
_TAKES_A_DEVICE = ("to", GPU, "as_tensor")
"""Functions that take a device by position, where an integer may be an ordinal; so does one named like each kind."""


@dataclass(frozen=True, slots=True)
class DeviceKeys:
    """The spelling of devices in the key of a graph whose inputs are all on ``base_device``."""

    base_device: torch.device
    """Device of all inputs of the graph."""

    def spelled(self, device: torch.device) -> str:
        """Return a device as text: ``base`` for ``base_device``, else torch's text."""
        return "base" if self.base_device.index is not None and device == self.base_device else str(device)

    def facts(self, graph: Graph) -> Iterator[str]:
        """Yield the facts about devices that a key contains.

        A GPU, or another accelerator, without ordinal is the current one, so the key says whether ``base_device`` is
        current. It contains the ordinal of ``base_device`` where the graph refers to GPUs by ordinals or texts,
        changes the current GPU, or refers to another GPU.
        """
        kind = self.base_device.type
        yield f"on {kind}"
        if is_accelerator(kind):
            yield f"current {functions_of(kind).current() == self.base_device.index}"
            if any(map(self._is_absolute, graph.nodes)):
                yield f"number {self.base_device.index}"

    def _is_absolute(self, node: Node) -> bool:
        """Report whether a node refers to GPUs in a way that depends on ordinals."""
        module = getattr(node.target, "__module__", None) or ""
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        kind, function = self.base_device.type, name.partition(".")[0]
        if module.startswith((*_ABOUT_DEVICES, f"torch.{kind}")) or f"_{GPU}" in name:
            return True
        numbers = node.args[1:] if function in _TAKES_A_DEVICE or function == kind else ()
        if any(type(each) is int for each in (*numbers, node.kwargs.get("device"))):
            return True
        return any(map(self._is_elsewhere, _leaves((node.args, node.kwargs))))

    def _is_elsewhere(self, value: Any) -> bool:
        """Report whether a value is another GPU, or the text of one."""
        if isinstance(value, torch.device):
            return value.index is not None and value.type != CPU_KIND and value != self.base_device
        return isinstance(value, str) and _ORDINAL.fullmatch(value) is not None


def _leaves(value: Any) -> Iterable[Any]:
    """Return the leaves of nested tuples, lists and dictionaries."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if not isinstance(value, tuple | list):
        return (value,)
    return (leaf for each in value for leaf in _leaves(each))
