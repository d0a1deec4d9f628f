"""Inputs whose extent no guard speaks of: memory that inputs share, which AOTAutograd passes as one input, their base,
and inputs in whose storage ``as_strided`` finds elements.

Dynamo guards sizes and strides of the program's inputs, not where they start in their storages, and AOTAutograd's graph
finds them in whatever base they have: ``as_strided`` takes it as it is, or refuses. Kernels are compiled for one
extent, and would read and write past the end of a smaller base, or beside the elements of an input that starts
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import SyntheticBaseAOTInput, ViewBaseAOTInput
from torch.fx import GraphModule, Node

from litz.host.load import HostFunction

Extent = tuple[int | None, ...]
"""The number of dimensions of a tensor, its sizes, strides and perhaps its offset; None where one is a symbol."""


_BY_POSITION = (
    torch.ops.aten.as_strided.default,
    torch.ops.aten.as_strided_copy.default,
    torch.ops.aten.as_strided_scatter.default,
)
"""Operators that count from the start of their first argument's storage."""


def bases(gm: GraphModule) -> dict[int, Extent]:
    """The extents of the bases among a graph's inputs, and of inputs read or written by their positions in memory, by
    position among the inputs, as the graph was traced."""
    kinds = SyntheticBaseAOTInput | ViewBaseAOTInput
    counted = _counted(gm)
    return {
        k: _extent(node.meta["val"])
        for k, node in enumerate(gm.graph.find_nodes(op="placeholder"))
        if node in counted or isinstance(node.meta.get("desc"), kinds)
    }


def _counted(gm: GraphModule) -> set[Node]:
    """The inputs in whose storages elements are found by their positions, also through views and written copies."""
    found: set[Node] = set()
    for target in _BY_POSITION:
        for node in gm.graph.find_nodes(op="call_function", target=target):
            while isinstance(node.target, torch._ops.OpOverload) and isinstance(node.args[0], Node):
                node = node.args[0]
            if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor):
                found.add(node)
    return found


def layouts(gm: GraphModule) -> dict[int, Extent]:
    """The extents of all tensors among a graph's inputs, wherever they start in their storages."""
    values = enumerate(node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder"))
    return {k: _extent(value)[:-1] for k, value in values if isinstance(value, torch.Tensor)}


def as_long_as(
    call: HostFunction, extents: Mapping[int, Extent], otherwise: HostFunction, *, or_longer: bool = False
) -> HostFunction:
    """The ``call`` of a graph as long as its inputs have these ``extents``, ``otherwise`` another one.

    One dimension may be longer, too, where ``or_longer`` says so: a base that is made of a storage has all of that, but
    is traced as what its inputs need.
    """

    def run(args: list[Any]) -> Sequence[Any]:
        same = all(_agree(_extent(args[k]), extent, or_longer) for k, extent in extents.items())
        return call(args) if same else otherwise(args)

    return run


def _extent(tensor: torch.Tensor) -> Extent:
    found = (tensor.dim(), *tensor.shape, *tensor.stride(), tensor.storage_offset())
    return tuple(each if type(each) is int else None for each in found)


def _agree(found: Extent, traced: Extent, or_longer: bool) -> bool:
    """True where extents are the same; of symbols the graph's guards speak."""
    if or_longer and found[0] == traced[0] == 1 and (found[1] or 0) > (traced[1] or 0):
        found, traced = found[2:], traced[2:]
    return all(b is None or a == b for a, b in zip(found, traced, strict=False))
