"""Devices of a graph, and calls on the GPU, or other accelerator, that it was compiled for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.fx import GraphModule

from litz.devices import CPU_KIND, functions_of, gpu, is_accelerator, is_gpu
from litz.host.runtime.load import HostFunction


def first_gpu(devices: Iterable[torch.device]) -> AbstractContextManager[object]:
    """Return a context in which the first GPU, or other accelerator, among some devices is current; without effect
    where there is none."""
    found = next((each for each in devices if is_accelerator(each.type)), None)
    if found is None or found.index is None or (is_gpu(found.type) and not gpu.is_available()):
        return contextlib.nullcontext()
    return functions_of(found.type).device(found.index)


def on_current_device(call: HostFunction, kind: str) -> HostFunction:
    """Return a call that runs with the present current device of a ``kind`` as current, on which its kernels are
    loaded; the call itself for the CPU."""
    if not is_accelerator(kind):
        return call
    functions = functions_of(kind)
    current, device = functions.current, functions.device
    ordinal = current()

    def run(args: list[Any]) -> Sequence[Any]:
        if current() == ordinal:
            return call(args)
        with device(ordinal):
            return call(args)

    return run


def trains_on_gpu(inputs: Sequence[Any]) -> bool:
    """Report whether a graph may have a backward and runs on a GPU, where recomputing costs less than memory does."""
    tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
    training = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    return training and any(is_gpu(each.device.type) for each in tensors)


def device_kinds(gm: GraphModule) -> tuple[str, ...]:
    """Return the device kinds of the tensors of a graph and its subgraphs; ``cpu`` where there are none, and where
    there are subgraphs, whose numbers become tensors of the CPU."""
    kinds = dict.fromkeys(tensor.device.type for tensor in tensors_of(gm))
    if any(isinstance(module, GraphModule) for module in gm.modules() if module is not gm):
        kinds.setdefault(CPU_KIND)
    return tuple(kinds) or (CPU_KIND,)


def tensors_of(gm: GraphModule) -> Iterable[torch.Tensor]:
    """Return example values of all tensors of a graph and its subgraphs."""
    graphs = (module.graph for module in gm.modules() if isinstance(module, GraphModule))
    return (tensor for graph in graphs for node in graph.nodes for tensor in _tensors(node.meta.get("val")))


def _tensors(value: object) -> Iterable[torch.Tensor]:
    """Yield the tensors in a nested value."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
