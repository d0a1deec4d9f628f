"""Numbering of a machine's devices inside a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from litz_ir.device import Device
from litz_ir.errors import UnsupportedOperation


@dataclass(frozen=True, slots=True)
class Devices:
    """GPUs of a graph, numbered in the order in which the graph names them.

    Numbering is relative, so that equal graphs on different GPUs are equal.
    """

    gpus: tuple[torch.device, ...] = ()
    """GPUs of the machine that tensors of the graph are on."""

    def of(self, device: torch.device, result: torch.device | None = None) -> Device:
        """Return the graph's device for a device of torch; one without an index means that of ``result``.

        Raises :class:`UnsupportedOperation` for a GPU that holds no tensor of a graph over several GPUs.
        """
        if _index(device) is None and result is not None and result.type == device.type:
            device = result
        same_type = [each for each in self.gpus if each.type == device.type]
        if device in same_type:
            return Device(device.type, same_type.index(device))
        if _index(device) is not None and len(same_type) > 1:
            raise UnsupportedOperation(f"no tensor of the graph is on {device}, which it names")
        return Device(device.type)


def gpus_of(gm: GraphModule) -> tuple[torch.device, ...]:
    """GPUs that tensors of a graph and of its subgraphs are on, in order of first use."""
    devices = (tensor.device for tensor in _tensors(gm))
    return tuple(dict.fromkeys(each for each in devices if each.type != "cpu" and _index(each) is not None))


def _index(device: torch.device) -> int | None:
    """Index of a device among those of its type; None where it has none."""
    return device.index


def _tensors(gm: GraphModule) -> Iterator[torch.Tensor]:
    for module in gm.modules():
        if not isinstance(module, GraphModule):
            continue
        for node in module.graph.nodes:
            constant = attrgetter(str(node.target))(module) if node.op == "get_attr" else None
            for value in (constant, *tree_leaves(node.meta.get("val"))):
                if isinstance(value, torch.Tensor):
                    yield value
