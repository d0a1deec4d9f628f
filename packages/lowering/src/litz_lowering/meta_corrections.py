"""Corrections of torch's meta kernels, where dtypes, shapes or strides differ from the operator's results.

Wrong metadata does no harm where operators run as they are, but lowering relies on it.
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
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.fx.node import map_arg
from torch.utils._pytree import tree_map_only

from litz_lowering.contexts.outputs import flatten
from litz_lowering.types.shared_memory import may_share_memory

_Correction = Callable[[Node], Any]


def correct_metadata(gm: GraphModule) -> None:
    """Correct ``meta["val"]`` of every node to match eager, and rerun the meta kernels that depend on it.

    ``gm`` is changed. Guards are added where strides depend on symbolic sizes (:data:`_CONDITIONS`). Call it on
    AOTAutograd's graph before :func:`litz_lowering.lower`.
    """
    changed: set[Node] = set()
    for node in gm.graph.nodes:
        correct = _CORRECTIONS.get(node.target)
        if correct is None and node.op == "call_function" and not changed.isdisjoint(node.all_input_nodes):
            correct = _rerun
        if correct is None and _has_overlap(node):
            correct = _without_overlap
        if correct is None:
            continue
        mode = detect_fake_mode([each.meta.get("val") for each in node.all_input_nodes])
        found = None if mode is None else _run(mode, correct, node)
        condition = _CONDITIONS.get(node.target)
        if found is not None and (condition is None or condition(node)):
            node.meta["val"] = found
            changed.add(node)


def _run(mode: FakeTensorMode, correct: _Correction, node: Node) -> Any:
    guards = mode.shape_env.suppress_guards() if mode.shape_env is not None else contextlib.nullcontext()
    with mode, guards:
        return correct(node)


def _rerun(node: Node) -> Any:
    """Run the operator's meta kernel on corrected arguments.

    Returns None where it raises, as eager would, and where it would define unbacked symbols again.
    """
    args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda each: each.meta.get("val"))
    if node.target is operator.getitem:
        return operator.getitem(*args)
    if "unbacked_bindings" in node.meta or not isinstance(node.target, torch._ops.OpOverload):
        return None
    with contextlib.suppress(RuntimeError, ValueError):
        return node.target(*args, **kwargs)
    return None


def _has_overlap(node: Node) -> bool:
    """True for new tensors that the meta kernel gives the strides of an expanded argument.

    ``diagonal_scatter`` before torch 2.13 is an example.
    """
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or may_share_memory(target):
        return False
    return any(
        isinstance(leaf, torch.Tensor) and _is_expanded(leaf) for leaf in flatten(node.meta.get("val"))
    )


def _is_expanded(tensor: torch.Tensor) -> bool:
    """True when a dimension of more than one element has stride 0. Symbolic sizes count as more than one."""
    return any(
        isinstance(stride, int) and stride == 0 and not (isinstance(size, int) and size <= 1)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _without_overlap(node: Node) -> Any:
    """Strides without overlap, in the order of dimensions of a copy of an expanded tensor."""
    return tree_map_only(
        torch.Tensor, lambda each: torch.empty_like(each) if _is_expanded(each) else each, node.meta["val"]
    )


def _max_unpool2d(node: Node) -> Any:
    """Memory format of the unpooled tensor."""
    layout = suggest_memory_format(_value(node.args[0]))
    return torch.empty_like(node.meta["val"], memory_format=layout)


def _unique_along(position: int) -> _Correction:
    """Correction for unique operators along a dimension, which is their argument ``position``.

    Eager's result has that dimension first in memory; the meta kernel makes it row-major. The meta kernel of
    ``unique_consecutive`` also repeats all sizes after a dimension given as -1.
    """

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
    """Order of dimensions that a copy of a tensor with gaps has; the meta kernel makes it row-major."""
    stated: torch.Tensor = node.meta["val"]
    copied = torch.empty_like(_value(node.args[0]))
    return None if stated.stride() == copied.stride() else copied


def _roll(node: Node) -> Any:
    """Memory format of channels-last inputs on a CPU, whose parts eager concatenates in that format."""
    x = _value(node.args[0])
    layout = suggest_memory_format(x)
    dims = node.args[2] if len(node.args) > 2 else ()
    if layout == torch.contiguous_format or not dims or x.device.type != "cpu" or x.numel() == 0:
        return None
    return torch.empty_like(node.meta["val"], memory_format=layout)


def _shifts_all(node: Node) -> bool:
    """True where ``roll`` moves elements along each of its dimensions; its result is row-major where it does not."""
    shape = _value(node.args[0]).shape
    shifts, dims = node.args[1:3]
    assert isinstance(shifts, list | tuple) and isinstance(dims, list | tuple)
    numbers = (shift.meta["val"] if isinstance(shift, Node) else shift for shift in shifts)
    return all(guard_or_false(n % shape[d] != 0) for n, d in zip(numbers, dims, strict=True))


def _channel_shuffle(node: Node) -> Any:
    """Memory format of the input on a CPU; the meta kernel gives row-major strides, as eager's on other devices."""
    x = _value(node.args[0])
    layout = suggest_memory_format(x)
    return torch.empty_like(node.meta["val"], memory_format=layout) if x.device.type == "cpu" else None


def _angle(node: Node) -> Any:
    """Row-major angles of complex numbers."""
    x = _value(node.args[0])
    return x.new_empty(x.shape, dtype=node.meta["val"].dtype) if x.is_complex() else None


def _with_integer_positions(node: Node) -> Any:
    """Positions and counts as ``int64``, including those of a single element and those not requested."""
    values, *others = node.meta["val"]
    if all(other.dtype == torch.int64 for other in others):
        return None
    return (values, *(other.new_empty(other.shape, dtype=torch.int64) for other in others))


def _bincount(node: Node) -> Any:
    """Counts as ``int64``; weighted sums as f32 for f32 weights, else as f64."""
    weights = node.args[1] if len(node.args) > 1 else node.kwargs.get("weights")
    dtype = torch.int64
    if weights is not None:
        dtype = torch.float32 if _value(weights).dtype == torch.float32 else torch.float64
    stated: torch.Tensor = node.meta["val"]
    return None if stated.dtype == dtype else stated.new_empty(stated.shape, dtype=dtype)


_CORRECTIONS: Mapping[Any, _Correction] = MappingProxyType(
    {
        torch.ops.aten.angle.default: _angle,
        torch.ops.aten.channel_shuffle.default: _channel_shuffle,
        torch.ops.aten.native_channel_shuffle.default: _channel_shuffle,
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
"""Correction of each operator: its results as fake tensors, or None where the meta kernel is right."""

_CONDITIONS: Mapping[Any, Callable[[Node], bool]] = MappingProxyType(
    {torch.ops.aten.roll.default: _shifts_all}
)
"""Conditions of corrections, which add guards for symbolic sizes."""


def _value(argument: object) -> torch.Tensor:
    assert isinstance(argument, Node)
    value: torch.Tensor = argument.meta["val"]
    return value
