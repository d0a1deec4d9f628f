"""The devices of a graph, and running on the GPU that it is compiled for, whichever is the current one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.fx import GraphModule

from litz.host.load import HostFunction


def first_gpu(devices: Iterable[torch.device]) -> AbstractContextManager[object]:
    """The first of some devices that is a GPU, as the current one; nothing where none is."""
    found = next((each for each in devices if each.type == "cuda"), None)
    if found is None or found.index is None or not torch.cuda.is_available():
        return contextlib.nullcontext()
    return torch.cuda.device(found.index)


def on_current_device(call: HostFunction) -> HostFunction:
    """A call whose kernels were loaded on the GPU that is current now: later it makes that one current for itself."""
    ordinal, current = torch.cuda.current_device(), torch.cuda.current_device

    def run(args: list[Any]) -> Sequence[Any]:
        if current() == ordinal:
            return call(args)
        with torch.cuda.device(ordinal):
            return call(args)

    return run


def device_kinds(gm: GraphModule) -> tuple[str, ...]:
    """The kinds of the devices that the tensors of a graph, and of those that it runs, are on; ``cpu`` for a graph
    without tensors."""
    kinds = dict.fromkeys(tensor.device.type for tensor in tensors_of(gm))
    return tuple(kinds) or ("cpu",)


def tensors_of(gm: GraphModule) -> Iterable[torch.Tensor]:
    """Examples of all tensors of a graph and of those that it runs."""
    graphs = (module.graph for module in gm.modules() if isinstance(module, GraphModule))
    return (tensor for graph in graphs for node in graph.nodes for tensor in _tensors(node.meta.get("val")))


def _tensors(value: object) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
