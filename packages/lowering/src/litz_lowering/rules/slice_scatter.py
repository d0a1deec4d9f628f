"""Writes into a part of a tensor that is known beforehand: the result is a copy with those elements changed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import torch
from torch.fx import Node

from litz_ir.dtypes import DType
from litz_ir.loops import Call, Extern, is_dense
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, add, floordiv, mod, mul
from litz_lowering.builder import offset_of
from litz_lowering.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules.index import replaced
from litz_lowering.rules.index_maps import strided
from litz_lowering.rules.position import element, slice_start
from litz_lowering.rules.view import dimension, storage_start
from litz_lowering.symbols_io import hint_of

ElementFunction = Callable[[Axes], Expr]

_BY_POSITION = frozenset(
    (
        torch.ops.aten.as_strided.default,
        torch.ops.aten.as_strided_copy.default,
        torch.ops.aten.as_strided_scatter.default,
        torch.ops.prims.as_strided_scatter.default,
    )
)
_COPIES_WITH_GAPS = frozenset(
    (
        torch.ops.aten.copy.default,
        torch.ops.aten._foreach_copy.default,
        torch.ops.aten.select_scatter.default,
        torch.ops.aten.slice_scatter.default,
        torch.ops.aten.diagonal_scatter.default,
        torch.ops.aten.as_strided_scatter.default,
        torch.ops.prims.as_strided_scatter.default,
    )
)


def _equal(a: Size, b: Size) -> Expr:
    return build.op("eq", build.index(a), build.index(b))


def _either(condition: Expr, new: Expr, old: Expr) -> Expr:
    """The new element, in the old one's dtype, where it is to be written."""
    return build.masked(condition, build.cast(new, old.dtype), old)


def in_place_of(
    ctx: LoweringContext, x: Tensor, make: Callable[[], Tensor], position: int | None = None
) -> Tensor | Declined:
    """The result of writing into ``x``, the node's first argument, or into the one at ``position`` of such a list.

    Eager copies all of the storage, gaps included, so the result starts where ``x`` does, and elements that share
    memory change together.
    """
    source, results, told = _copied(ctx.node, position)
    memory = source.meta["val"]
    # Views that overlap do so at every size, so that the sizes at hand tell.
    steps = [(hint_of(n), hint_of(s)) for n, s in zip(memory.shape, memory.stride(), strict=True)]
    if not _apart([(n, s) for n, s in steps if n is not None and n != 1 and s is not None and s != 0]):
        return Declined("a write to elements that share memory")
    if not is_dense(x.shape, x.type.layout) and any(map(_read_by_position, results)):
        return Declined("a write to a tensor with gaps, which are read")
    written = make()
    ctx.builder.starts(written, ctx.builder.start(x, offset_of(memory)), offset_of(told))
    return written


def _copied(node: Node, position: int | None) -> tuple[Node, list[Node], torch.Tensor]:
    """What a node writes into a copy of, the nodes that are the result, and that as its metadata tells."""
    source, told = node.args[0], node.meta["val"]
    if position is None:
        assert isinstance(source, Node), "a tensor"
        return source, [node], told
    assert isinstance(source, list | tuple), "a list of tensors"
    chosen = source[position]
    assert isinstance(chosen, Node), "a tensor"
    return chosen, [user for user in node.users if user.args[1] == position], told[position]


def _read_by_position(node: Node) -> bool:
    """True when something looks for elements of the node's result, of a view of it, or of a copy that takes over its
    gaps, by their position in memory."""
    for user in node.users:
        if user.target in _BY_POSITION:
            return True
        if user.target is operator.getitem or (user.target in _COPIES_WITH_GAPS and _is_first(node, user)):
            if _read_by_position(user):
                return True
            continue
        returns = user.target._schema.returns if isinstance(user.target, torch._ops.OpOverload) else ()
        if any(each.alias_info is not None for each in returns) and _read_by_position(user):
            return True
    return False


def _is_first(node: Node, user: Node) -> bool:
    """True when a node is a user's first argument, or in that list."""
    first = user.args[0]
    return first is node or (isinstance(first, list | tuple) and node in first)


def _selected(d: int, index: Size, src: Tensor, other: ElementFunction) -> ElementFunction:
    """``src`` at one index of dimension ``d``, which it does not have."""
    return lambda axes: _either(_equal(axes[d], index), src.load((*axes[:d], *axes[d + 1 :])), other(axes))


@rule("aten.select_scatter.default")
def select_scatter(ctx: LoweringContext, x: Tensor, src: Tensor, dim: int, index: Size) -> Tensor | Declined:
    """``src`` in place of one element of a dimension."""
    d = dimension(dim, x.rank)
    body = _selected(d, element(ctx, index, x.shape[d], d), src, x.load)
    return in_place_of(ctx, x, lambda: ctx.pointwise(body))


@rule("aten.select_backward.default")
def select_backward(
    ctx: LoweringContext, grad: Tensor, input_sizes: Sequence[Size], dim: int, index: Size
) -> Tensor:
    """Zero but for one element of a dimension."""
    d = dimension(dim, len(input_sizes))
    place = element(ctx, index, input_sizes[d], d)
    return ctx.pointwise(_selected(d, place, grad, _zero(grad.dtype)))


def _zero(dtype: DType) -> ElementFunction:
    return lambda axes: build.const(0, dtype)


def _sliced(
    ctx: LoweringContext,
    d: int,
    size: Size,
    start: Size | None,
    step: Size,
    src: Tensor,
    other: ElementFunction,
) -> Tensor:
    """``src`` in place of every ``step``-th element of dimension ``d`` from ``start``."""
    first = slice_start(ctx, start, size)

    def body(axes: Axes) -> Expr:
        offset = add(axes[d], mul(first, -1))
        place = offset if step == 1 else floordiv(offset, step)
        conditions = []
        if first != 0:
            conditions.append(build.op("ge", build.index(offset), build.index(0)))
        if add(first, mul(src.shape[d], step)) != size:
            conditions.append(build.op("lt", build.index(place), build.index(src.shape[d])))
        if step != 1:
            conditions.append(_equal(mod(offset, step), 0))
        return _either(build.logical_and(*conditions), src.load(replaced(axes, d, place)), other(axes))

    return ctx.pointwise(body)


@rule("aten.slice_scatter.default")
def slice_scatter(
    ctx: LoweringContext,
    x: Tensor,
    src: Tensor,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> Tensor | Declined:
    """``src`` in place of a slice."""
    d = dimension(dim, x.rank)
    if src.shape[d] == 0:
        return in_place_of(ctx, x, lambda: ctx.pointwise(x.load))
    return in_place_of(ctx, x, lambda: _sliced(ctx, d, x.shape[d], start, step, src, x.load))


@rule("aten.slice_backward.default")
def slice_backward(
    ctx: LoweringContext,
    grad: Tensor,
    input_sizes: Sequence[Size],
    dim: int,
    start: Size | None,
    end: Size | None,
    step: Size,
) -> Tensor:
    """Zero but for a slice."""
    d = dimension(dim, len(input_sizes))
    if grad.shape[d] == 0:
        return ctx.pointwise(_zero(grad.dtype))
    return _sliced(ctx, d, input_sizes[d], start, step, grad, _zero(grad.dtype))


def _diagonal(
    offset: int, dim1: int, dim2: int, rank: int, src: Tensor, other: ElementFunction
) -> ElementFunction:
    """``src``, whose last dimension runs along the diagonal, in place of the diagonal."""
    a, b = dimension(dim1, rank), dimension(dim2, rank)

    def body(axes: Axes) -> Expr:
        rest = [axis for d, axis in enumerate(axes) if d not in (a, b)]
        on = _equal(add(axes[a], offset), axes[b])
        along_it = add(axes[a], min(offset, 0))
        return _either(on, src.load((*rest, along_it)), other(axes))

    return body


@rule("aten.diagonal_scatter.default")
def diagonal_scatter(
    ctx: LoweringContext, x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor | Declined:
    """``src`` in place of a diagonal."""
    body = _diagonal(offset, dim1, dim2, x.rank, src, x.load)
    return in_place_of(ctx, x, lambda: ctx.pointwise(body))


@rule("aten.diagonal_backward.default")
def diagonal_backward(
    ctx: LoweringContext, grad: Tensor, input_sizes: Sequence[Size], offset: int, dim1: int, dim2: int
) -> Tensor:
    """Zero but for a diagonal."""
    return ctx.pointwise(_diagonal(offset, dim1, dim2, len(input_sizes), grad, _zero(grad.dtype)))


@rule("aten.as_strided_scatter.default", "prims.as_strided_scatter.default")
def as_strided_scatter(
    ctx: LoweringContext,
    x: Tensor,
    src: Tensor,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> Tensor | Declined:
    """``src`` in place of the elements at some positions in memory: an element's position is told apart into the steps
    that ``src`` takes to it, the longest first, which none of the shorter ones together may reach."""
    if any(s == 0 for s in src.shape):
        return in_place_of(ctx, x, lambda: ctx.pointwise(x.load))
    if isinstance(ctx.builder.producer(ctx.builder.owner(x)[0].name), Call):
        return Declined("as_strided_scatter into what a call returned")
    first = ctx.builder.symbols.size(storage_start(ctx, x))
    shift = 0 if storage_offset is None else add(first, mul(storage_offset, -1))
    steps = [(d, n, s) for d, (n, s) in enumerate(zip(size, stride, strict=True)) if n != 1]
    if not _apart([(n, s) for _, n, s in steps]):
        shape, strides = x.shape, x.type.layout.strides
        if strided(tuple(0 for _ in size), 0, stride, shape, strides) is None:
            reason = "as_strided_scatter into a tensor that is not dense"
            return _by_host(ctx, x, src, size, stride, mul(shift, -1), reason)
        place = mul(shift, -1)
        return in_place_of(
            ctx,
            x,
            lambda: ctx.scatter(
                x, size, lambda axes: strided(axes, place, stride, shape, strides) or (), src.load
            ),
        )
    steps.sort(key=lambda step: -int(str(step[2])))

    def body(axes: Axes) -> Expr:
        left = add(shift, *(mul(axis, s) for axis, s in zip(axes, x.type.layout.strides, strict=True)))
        conditions = [build.op("ge", build.index(left), build.index(0))]
        index: list[Size] = [0] * src.rank
        for d, n, s in steps:
            index[d] = floordiv(left, s)
            conditions.append(build.op("lt", build.index(index[d]), build.index(n)))
            left = mod(left, s)
        conditions.append(_equal(left, 0))
        return _either(build.logical_and(*conditions), src.load(index), x.load(axes))

    return in_place_of(ctx, x, lambda: ctx.pointwise(body))


def _by_host(
    ctx: LoweringContext, x: Tensor, src: Tensor, size: Sequence[Size], stride: Sequence[Size], offset: Size,
    reason: str,
) -> Tensor:  # fmt: skip
    """A copy of all of the memory of ``x`` with ``src`` written from ``offset`` elements after its first on."""
    arguments = (x, src, tuple(size), tuple(stride), offset)
    # The types are given since what is complex comes as pairs.
    return ctx.call(
        Extern, "strided_scatter", arguments, None, (ctx.output,), layout_requirement="exact", reason=reason
    )[0]


def _apart(steps: Sequence[tuple[Size, Size]]) -> bool:
    """True when it is known that no two elements of so many steps of such a length are in one place."""
    if not all(isinstance(n, int) and isinstance(s, int) for n, s in steps):
        return len(steps) == 1 and isinstance(steps[0][1], int)
    reach = 0
    for step, count in sorted((int(str(s)), int(str(n))) for n, s in steps):
        if step <= reach and count > 1:
            return False
        reach += (count - 1) * step
    return True
