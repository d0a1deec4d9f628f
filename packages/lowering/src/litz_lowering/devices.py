"""Which device of a graph a device of the machine is."""

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
    """The devices of a graph. ``gpus`` are the machine's that its tensors are on, in the order in which it names them:
    to the graph they are the first of their kind, the second and so on, and equal graphs on others are equal."""

    gpus: tuple[torch.device, ...] = ()

    def of(self, device: torch.device, result: torch.device | None = None) -> Device:
        """A device as the graph knows it. One without an index is that of the ``result`` that it is asked for.

        Raises :class:`UnsupportedOperation` for a GPU that no tensor of a graph over several is on.
        """
        if _index(device) is None and result is not None and result.type == device.type:
            device = result
        kin = [each for each in self.gpus if each.type == device.type]
        if device in kin:
            return Device(device.type, kin.index(device))
        if _index(device) is not None and len(kin) > 1:
            raise UnsupportedOperation(f"no tensor of the graph is on {device}, which it names")
        return Device(device.type)


def gpus_of(gm: GraphModule) -> tuple[torch.device, ...]:
    """The GPUs of the machine that tensors of a graph, and of those that it runs, are on; the first named first."""
    devices = (tensor.device for tensor in _tensors(gm))
    return tuple(dict.fromkeys(each for each in devices if each.type != "cpu" and _index(each) is not None))


def _index(device: torch.device) -> int | None:
    """Which of its kind a device is, where it says so."""
    return device.index


def _tensors(gm: GraphModule) -> Iterator[torch.Tensor]:
    for module in gm.modules():
        if not isinstance(module, GraphModule):
            continue
        for node in module.graph.nodes:
            held = attrgetter(str(node.target))(module) if node.op == "get_attr" else None
            for value in (held, *tree_leaves(node.meta.get("val"))):
                if isinstance(value, torch.Tensor):
                    yield value
