"""What torch's meta kernels get wrong: dtypes, shapes and strides that are not those of what the operator returns.

A traced graph is right under a backend that runs the operators as they are, and wrong under one that believes the
metadata.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._prims_common import suggest_memory_format
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_map_only

from litz_lowering.outputs import flatten

Correction = Callable[[Node], Any]


def correct_metadata(gm: GraphModule) -> None:
    """Make ``meta["val"]`` of every node what eager returns, and derive again what follows from it; ``gm`` is changed.

    Call it on what AOTAutograd hands over, before :func:`litz_lowering.lower`. No guard is added.
    """
    changed: set[Node] = set()
    for node in gm.graph.nodes:
        correct = CORRECTIONS.get(node.target)
        if correct is None and node.op == "call_function" and not changed.isdisjoint(node.all_input_nodes):
            correct = _derived
        if correct is None and _overlaps(node):
            correct = _apart
        if correct is None:
            continue
        mode = detect_fake_mode([each.meta.get("val") for each in node.all_input_nodes])
        found = None if mode is None else _under(mode, correct, node)
        if found is not None:
            node.meta["val"] = found
            changed.add(node)


def _under(mode: FakeTensorMode, correct: Correction, node: Node) -> Any:
    guards = mode.shape_env.suppress_guards() if mode.shape_env is not None else contextlib.nullcontext()
    with mode, guards:
        return correct(node)


def _derived(node: Node) -> Any:
    """What the operator's meta kernel says of the corrected arguments; None where it refuses them, as eager would, or
    where it would name data anew."""
    args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda each: each.meta.get("val"))
    if node.target is operator.getitem:
        return operator.getitem(*args)
    if "unbacked_bindings" in node.meta or not isinstance(node.target, torch._ops.OpOverload):
        return None
    with contextlib.suppress(RuntimeError, ValueError):
        return node.target(*args, **kwargs)
    return None


def _overlaps(node: Node) -> bool:
    """True for new tensors to which the meta kernel gives the strides of an expanded argument, as that of
    ``diagonal_scatter`` does before torch 2.13."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or any(r.alias_info for r in target._schema.returns):
        return False
    return any(isinstance(leaf, torch.Tensor) and _repeats(leaf) for leaf in flatten(node.meta.get("val")))


def _repeats(tensor: torch.Tensor) -> bool:
    """True when all of a dimension lies in one element of memory; a symbolic size is taken for more than one."""
    return any(
        isinstance(stride, int) and stride == 0 and not (isinstance(size, int) and size <= 1)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _apart(node: Node) -> Any:
    """Each element in memory of its own, in the order that a copy of an expanded tensor has."""
    return tree_map_only(
        torch.Tensor, lambda each: torch.empty_like(each) if _repeats(each) else each, node.meta["val"]
    )


def _max_unpool2d(node: Node) -> Any:
    """In the memory format of what is unpooled."""
    layout = suggest_memory_format(_value(node.args[0]))
    return torch.empty_like(node.meta["val"], memory_format=layout)


def _unique_along(position: int) -> Correction:
    """For an operator whose argument ``position`` is the dimension: it lies first in memory, of what the meta kernel
    makes row-major. That of runs repeats all sizes after a dimension given as -1."""

    def correct(node: Node) -> Any:
        given = node.args[position] if len(node.args) > position else node.kwargs.get("dim")
        x = _value(node.args[0])
        if not isinstance(given, int) or not x.ndim:
            return _with_integer_positions(node)
        dimension = given % x.ndim
        values, positions, counts = node.meta["val"]
        size = values.shape[dimension]
        others = (*x.shape[:dimension], *x.shape[dimension + 1 :])
        return x.new_empty((size, *others)).movedim(0, dimension), positions, counts.new_empty((size,))

    return correct


def _index_fill(node: Node) -> Any:
    """A copy keeps the order of dimensions of a tensor with gaps; the meta kernel makes a row-major one."""
    told: torch.Tensor = node.meta["val"]
    copied = torch.empty_like(_value(node.args[0]))
    return None if told.stride() == copied.stride() else copied


def _roll(node: Node) -> Any:
    """On a CPU the two parts of images are joined in the memory format of the images; the meta kernel makes a row-major
    tensor, as eager does where nothing moves along some dimension."""
    x = _value(node.args[0])
    shifts, dims = node.args[1], node.args[2] if len(node.args) > 2 else ()
    assert isinstance(shifts, list | tuple) and isinstance(dims, list | tuple)
    layout = suggest_memory_format(x)
    if layout == torch.contiguous_format or not dims or x.device.type != "cpu" or x.numel() == 0:
        return None
    sizes = (x.shape[d] for d in dims if isinstance(d, int))
    moved = all(
        isinstance(shift, int) and shift % size != 0 for shift, size in zip(shifts, sizes, strict=True)
    )
    return torch.empty_like(node.meta["val"], memory_format=layout) if moved else None


def _with_integer_positions(node: Node) -> Any:
    """Positions and counts are ``int64``, also those of a single element and those that nobody asked for."""
    values, *others = node.meta["val"]
    if all(other.dtype == torch.int64 for other in others):
        return None
    return (values, *(other.new_empty(other.shape, dtype=torch.int64) for other in others))


def _bincount(node: Node) -> Any:
    """Counts are ``int64``; sums of weights are as wide as these, if they are floats of 32 bits, else double."""
    weights = node.args[1] if len(node.args) > 1 else node.kwargs.get("weights")
    dtype = torch.int64
    if weights is not None:
        dtype = torch.float32 if _value(weights).dtype == torch.float32 else torch.float64
    told: torch.Tensor = node.meta["val"]
    return None if told.dtype == dtype else told.new_empty(told.shape, dtype=dtype)


CORRECTIONS: Mapping[Any, Correction] = MappingProxyType(
    {
        torch.ops.aten._unique2.default: _with_integer_positions,
        torch.ops.aten.bincount.default: _bincount,
        torch.ops.aten.index_fill.int_Scalar: _index_fill,
        torch.ops.aten.index_fill.int_Tensor: _index_fill,
        torch.ops.aten.max_unpool2d.default: _max_unpool2d,
        torch.ops.aten.roll.default: _roll,
        torch.ops.aten.unique_consecutive.default: _unique_along(3),
        torch.ops.aten.unique_dim.default: _unique_along(1),
    }
)
"""By operator: what it returns, made of fake tensors; None where its meta kernel is right."""


def _value(argument: object) -> torch.Tensor:
    assert isinstance(argument, Node)
    value: torch.Tensor = argument.meta["val"]
    return value
