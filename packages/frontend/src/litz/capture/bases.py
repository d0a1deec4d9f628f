"""Inputs whose extents no guard checks: bases of inputs that share memory, and inputs accessed by storage position.

AOTAutograd passes inputs that share memory as one, their base, and ``as_strided`` accesses elements by their
positions in the storage. Dynamo guards sizes and strides of the program's inputs, not their storage offsets. Eager's
``as_strided`` works for any base that is large enough. Kernels are compiled for one extent: they would access memory
past the end of a smaller base, or the wrong elements of an input with another offset.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import SyntheticBaseAOTInput, ViewBaseAOTInput
from torch.fx import GraphModule, Node

from litz.host.runtime.load import HostFunction

Extent = tuple[int | None, ...]
"""Number of dimensions, sizes, strides and, mostly, storage offset of a tensor; ``None`` for a symbol."""


_BY_POSITION = (
    torch.ops.aten.as_strided.default,
    torch.ops.aten.as_strided_copy.default,
    torch.ops.aten.as_strided_scatter.default,
)
"""Operators that access elements by their positions in the storage of the first argument."""


def bases(gm: GraphModule) -> dict[int, Extent]:
    """Return the traced extents of a graph's bases, and of inputs accessed by storage position, by input position."""
    kinds = SyntheticBaseAOTInput | ViewBaseAOTInput
    counted = _counted(gm)
    return {
        k: _extent(node.meta["val"])
        for k, node in enumerate(gm.graph.find_nodes(op="placeholder"))
        if node in counted or isinstance(node.meta.get("desc"), kinds)
    }


def _counted(gm: GraphModule) -> set[Node]:
    """Return the inputs accessed by storage position, also through views and written copies."""
    found: set[Node] = set()
    for target in _BY_POSITION:
        for node in gm.graph.find_nodes(op="call_function", target=target):
            while (before := _written_or_viewed(node)) is not None:
                node = before
            if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor):
                found.add(node)
    return found


def _written_or_viewed(node: Node) -> Node | None:
    """Return the value that a node is a view or the new content of; None if it is a tensor of its own."""
    match node.target, node.args:
        case torch._ops.OpOverload(), (Node() as first, *_):
            return first
        case operator.getitem, (Node(args=(list() | tuple() as written, *_)), int() as position):
            element = written[position] if position < len(written) else None
            return element if isinstance(element, Node) else None
    return None


def layouts(gm: GraphModule) -> dict[int, Extent]:
    """Return the traced extents of all tensor inputs, without storage offsets."""
    values = enumerate(node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder"))
    return {k: _extent(value)[:-1] for k, value in values if isinstance(value, torch.Tensor)}


def with_extent_guard(
    call: HostFunction, extents: Mapping[int, Extent], otherwise: HostFunction, *, or_longer: bool = False
) -> HostFunction:
    """Return ``call`` for inputs of these ``extents``, ``otherwise`` for others.

    With ``or_longer`` a one-dimensional input may be longer: a base made of a storage has all of its elements, but
    is traced with those that the graph's inputs need.
    """

    def run(args: list[Any]) -> Sequence[Any]:
        same = all(_agree(_extent(args[k]), extent, or_longer) for k, extent in extents.items())
        return call(args) if same else otherwise(args)

    return run


def _extent(tensor: torch.Tensor) -> Extent:
    """Return the extent of a tensor."""
    found = (tensor.dim(), *tensor.shape, *tensor.stride(), tensor.storage_offset())
    return tuple(each if type(each) is int else None for each in found)


def _agree(found: Extent, traced: Extent, or_longer: bool) -> bool:
    """Report whether an extent equals the traced one; symbols are checked by the graph's guards."""
    if or_longer and found[0] == traced[0] == 1 and (found[1] or 0) > (traced[1] or 0):
        found, traced = found[2:], traced[2:]
    return all(b is None or a == b for a, b in zip(found, traced, strict=False))
