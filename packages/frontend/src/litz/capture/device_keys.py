"""Where a captured graph is, as its key says it: on one GPU or another, not on which of the machine's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

_ORDINAL = re.compile(r"[a-z]+:\d+")
_ABOUT_DEVICES = ("torch.cuda", "torch.accelerator")
_TAKES_A_DEVICE = ("to", "cuda", "as_tensor")
"""What takes a device by position: an integer there may be an ordinal."""


@dataclass(frozen=True, slots=True)
class DeviceKeys:
    """How devices are spelled in the key of a graph whose inputs are all on ``base_device``."""

    base_device: torch.device

    def spelled(self, device: torch.device) -> str:
        """A device: ``base_device`` where it is that one, else as torch spells it."""
        return "home" if self.base_device.index is not None and device == self.base_device else str(device)

    def facts(self, graph: Graph) -> Iterator[str]:
        """What a key says of where the graph is.

        A GPU that is named without its number is the current one, so it counts whether ``base_device`` is. Its number
        counts where the graph speaks of GPUs in ways that are not seen through: by numbers alone, as text, by
        changing the current one; or where it speaks of another one than ``base_device``.
        """
        yield f"on {self.base_device.type}"
        if self.base_device.type == "cuda":
            yield f"current {torch.cuda.current_device() == self.base_device.index}"
            if any(map(self._is_absolute, graph.nodes)):
                yield f"number {self.base_device.index}"

    def _is_absolute(self, node: Node) -> bool:
        module = getattr(node.target, "__module__", None) or ""
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if module.startswith(_ABOUT_DEVICES) or "_cuda" in name:
            return True
        numbers = node.args[1:] if name.partition(".")[0] in _TAKES_A_DEVICE else ()
        if any(type(each) is int for each in (*numbers, node.kwargs.get("device"))):
            return True
        return any(map(self._is_elsewhere, _leaves((node.args, node.kwargs))))

    def _is_elsewhere(self, value: Any) -> bool:
        if isinstance(value, torch.device):
            return value.index is not None and value.type != "cpu" and value != self.base_device
        return isinstance(value, str) and _ORDINAL.fullmatch(value) is not None


def _leaves(value: Any) -> Iterable[Any]:
    """What is in tuples, lists and dictionaries."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if not isinstance(value, tuple | list):
        return (value,)
    return (leaf for each in value for leaf in _leaves(each))
