"""Writes into a static part of a tensor: the result is a copy with those elements changed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence

import torch
from torch.fx import Node

from litz_ir.dtypes import DType
from litz_ir.loops import Call, Extern, is_dense
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Predicate, Size, add, floordiv, mod, mul, prove
from litz_lowering.contexts.builder import offset_of
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions.index_maps import strided
from litz_lowering.expressions.position import element, slice_start
from litz_lowering.rules.indexing.index import replaced
from litz_lowering.rules.indexing.view import dimension, storage_start
from litz_lowering.types.shared_memory import may_share_memory
from litz_lowering.types.symbols_io import hint_of

_ElementFunction = Callable[[Axes], Expr]

_BY_POSITION = frozenset(
    (
        torch.ops.aten.as_strided.default,
        torch.ops.aten.as_strided_copy.default,
        torch.ops.aten.as_strided_scatter.default,
        torch.ops.prims.as_strided_scatter.default,
    )
)
_OVERLAPPING = frozenset((torch.ops.aten.as_strided.default, torch.ops.aten.unfold.default))
"""Views of which several elements may be one element of the base."""

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
    """New element, cast to the old one's dtype, where the condition is true; else the old one."""
    return build.masked(condition, build.cast(new, old.dtype), old)


def in_place_of(
    ctx: LoweringContext, x: Tensor, make: Callable[[], Tensor], position: int | None = None
) -> Tensor | Declined:
    """Result of writing into ``x``, the node's first argument, or the element at ``position`` of that list.

    Eager copies the whole storage including gaps, so the result starts at the same storage offset as ``x``.
    Declines where elements of ``x`` share memory, since they would change together in eager.
    """
    source, results, metadata = _copied(ctx.node, position)
    memory = source.meta["val"]
    if _may_overlap(ctx, source):
        return Declined("the written elements may share memory")
    if not is_dense(x.shape, x.type.layout) and any(map(_is_read_by_offset, results)):
        return Declined("gaps of the written tensor's storage are read")
    written = make()
    ctx.builder.record_offset(written, ctx.builder.eager_offset(x, offset_of(memory)), offset_of(metadata))
    return written


def _may_overlap(ctx: LoweringContext, node: Node) -> bool:
    """True where elements of a tensor may share memory, other than those that an expansion repeats.

    Elements of most views share none if those of their base share none. An input whose strides no symbol relates to its
    sizes counts as in the traced call.
    """
    memory: torch.Tensor = node.meta["val"]
    pairs = zip(memory.shape, memory.stride(), strict=True)
    steps = [(n, s) for n, s in pairs if not _is_known(n, 1) and not _is_known(s, 0)]
    hints = [
        (n, s)
        for each in steps
        if (n := hint_of(each[0])) is not None and (s := hint_of(each[1])) is not None
    ]
    has_hints = len(hints) == len(steps)
    in_order = sorted(steps, key=lambda step: hint_of(step[1]) or 0) if has_hints else reversed(steps)
    if _never_overlap(ctx, [tuple(map(ctx.builder.symbols.size, step)) for step in in_order]):
        return False
    base = _base_without_overlap(node)
    if base is not None:
        return _may_overlap(ctx, base)
    return (
        node.target in _OVERLAPPING
        or not has_hints
        or not _are_disjoint([each for each in hints if each[0] != 1])
    )


def _never_overlap(ctx: LoweringContext, steps: Iterable[tuple[Size, ...]]) -> bool:
    """True where it is provable that each stride, the smallest first, is beyond what the sizes and strides before it
    reach."""
    ranges = ctx.builder.symbols.ranges()
    reach: Size = 0
    for count, step in steps:
        if prove(Predicate("lt", reach, step), ranges) is not True:
            return False
        reach = add(reach, mul(add(count, -1), step))
    return True


def _base_without_overlap(node: Node) -> Node | None:
    """Tensor of which a view, or one of several, has each element once at most; None for other nodes."""
    view = node.args[0] if node.target is operator.getitem else node
    if not isinstance(view, Node) or not isinstance(view.target, torch._ops.OpOverload):
        return None
    base = view.args[0] if view.args else None
    is_view = view.target not in _OVERLAPPING and may_share_memory(view.target)
    return base if is_view and isinstance(base, Node) else None


def _is_known(size: int | torch.SymInt, number: int) -> bool:
    return isinstance(size, int) and size == number


def _copied(node: Node, position: int | None) -> tuple[Node, list[Node], torch.Tensor]:
    """Tensor that a node copies and writes to, the nodes of the result, and the result's metadata."""
    source, metadata = node.args[0], node.meta["val"]
    if position is None:
        assert isinstance(source, Node), "the first argument is a tensor"
        return source, [node], metadata
    assert isinstance(source, list | tuple), "the first argument is a list of tensors"
    chosen = source[position]
    assert isinstance(chosen, Node), "the first argument is a list of tensors"
    return chosen, [user for user in node.users if user.args[1] == position], metadata[position]


def _is_read_by_offset(node: Node) -> bool:
    """True when storage offsets of the result, of a view, or of a copy that keeps its gaps are read."""
    for user in node.users:
        if user.target in _BY_POSITION:
            return True
        if user.target is operator.getitem or (user.target in _COPIES_WITH_GAPS and _is_first(node, user)):
            if _is_read_by_offset(user):
                return True
            continue
        is_view = isinstance(user.target, torch._ops.OpOverload) and may_share_memory(user.target)
        if is_view and _is_read_by_offset(user):
            return True
    return False


def _is_first(node: Node, user: Node) -> bool:
    """True when a node is a user's first argument, or an element of that list."""
    first = user.args[0]
    return first is node or (isinstance(first, list | tuple) and node in first)


def _selected(d: int, index: Size, src: Tensor, other: _ElementFunction) -> _ElementFunction:
    """``src`` at one index of dimension ``d``, which ``src`` lacks."""
    return lambda axes: _either(_equal(axes[d], index), src.load((*axes[:d], *axes[d + 1 :])), other(axes))


@rule("aten.select_scatter.default")
def select_scatter(ctx: LoweringContext, x: Tensor, src: Tensor, dim: int, index: Size) -> Tensor | Declined:
    """Replace one index of a dimension by ``src``."""
    d = dimension(dim, x.rank)
    body = _selected(d, element(ctx, index, x.shape[d], d), src, x.load)
    return in_place_of(ctx, x, lambda: ctx.pointwise(body))


@rule("aten.select_backward.default")
def select_backward(
    ctx: LoweringContext, grad: Tensor, input_sizes: Sequence[Size], dim: int, index: Size
) -> Tensor:
    """Gradient at one index of a dimension, zeros elsewhere."""
    d = dimension(dim, len(input_sizes))
    position = element(ctx, index, input_sizes[d], d)
    return ctx.pointwise(_selected(d, position, grad, _zero(grad.dtype)))


def _zero(dtype: DType) -> _ElementFunction:
    return lambda axes: build.const(0, dtype)


def _sliced(
    ctx: LoweringContext,
    d: int,
    size: Size,
    start: Size | None,
    step: Size,
    src: Tensor,
    other: _ElementFunction,
) -> Tensor:
    """Replace every ``step``-th index of dimension ``d`` from ``start`` by ``src``."""
    first = slice_start(ctx, start, size)

    def body(axes: Axes) -> Expr:
        offset = add(axes[d], mul(first, -1))
        position = offset if step == 1 else floordiv(offset, step)
        conditions = []
        if first != 0:
            conditions.append(build.op("ge", build.index(offset), build.index(0)))
        if add(first, mul(src.shape[d], step)) != size:
            conditions.append(build.op("lt", build.index(position), build.index(src.shape[d])))
        if step != 1:
            conditions.append(_equal(mod(offset, step), 0))
        return _either(build.logical_and(*conditions), src.load(replaced(axes, d, position)), other(axes))

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
    """Replace a slice by ``src``."""
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
    """Gradient at a slice, zeros elsewhere."""
    d = dimension(dim, len(input_sizes))
    if grad.shape[d] == 0:
        return ctx.pointwise(_zero(grad.dtype))
    return _sliced(ctx, d, input_sizes[d], start, step, grad, _zero(grad.dtype))


def _diagonal(
    offset: int, dim1: int, dim2: int, rank: int, src: Tensor, other: _ElementFunction
) -> _ElementFunction:
    """Replace a diagonal by ``src``, whose last dimension runs along it."""
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
    """Replace a diagonal by ``src``."""
    body = _diagonal(offset, dim1, dim2, x.rank, src, x.load)
    return in_place_of(ctx, x, lambda: ctx.pointwise(body))


@rule("aten.diagonal_backward.default")
def diagonal_backward(
    ctx: LoweringContext, grad: Tensor, input_sizes: Sequence[Size], offset: int, dim1: int, dim2: int
) -> Tensor:
    """Gradient at a diagonal, zeros elsewhere."""
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
    """Replace elements at given storage offsets by ``src``.

    The index into ``src`` is computed from an element's storage offset by dividing by the strides in descending
    order, which requires that no stride is reached by the smaller ones together.
    """
    if any(s == 0 for s in src.shape):
        return in_place_of(ctx, x, lambda: ctx.pointwise(x.load))
    if isinstance(ctx.builder.producer(ctx.builder.owner(x)[0].name), Call):
        return Declined("as_strided_scatter into the result of a call")
    first = ctx.builder.symbols.size(storage_start(ctx, x))
    shift = 0 if storage_offset is None else add(first, mul(storage_offset, -1))
    dims_sizes_strides = [(d, n, s) for d, (n, s) in enumerate(zip(size, stride, strict=True)) if n != 1]
    if not _are_disjoint([(n, s) for _, n, s in dims_sizes_strides]):
        shape, strides = x.shape, x.type.layout.strides
        if strided(tuple(0 for _ in size), 0, stride, shape, strides) is None:
            reason = "as_strided_scatter into a tensor that is not dense"
            return _by_host(ctx, x, src, size, stride, mul(shift, -1), reason)
        base_offset = mul(shift, -1)
        return in_place_of(
            ctx,
            x,
            lambda: ctx.scatter(
                x, size, lambda axes: strided(axes, base_offset, stride, shape, strides) or (), src.load
            ),
        )
    dims_sizes_strides.sort(key=lambda step: -int(str(step[2])))

    def body(axes: Axes) -> Expr:
        remainder = add(shift, *(mul(axis, s) for axis, s in zip(axes, x.type.layout.strides, strict=True)))
        conditions = [build.op("ge", build.index(remainder), build.index(0))]
        index: list[Size] = [0] * src.rank
        for d, n, s in dims_sizes_strides:
            index[d] = floordiv(remainder, s)
            conditions.append(build.op("lt", build.index(index[d]), build.index(n)))
            remainder = mod(remainder, s)
        conditions.append(_equal(remainder, 0))
        return _either(build.logical_and(*conditions), src.load(index), x.load(axes))

    return in_place_of(ctx, x, lambda: ctx.pointwise(body))


def _by_host(
    ctx: LoweringContext, x: Tensor, src: Tensor, size: Sequence[Size], stride: Sequence[Size], offset: Size,
    reason: str,
) -> Tensor:  # fmt: skip
    """Copy of the whole memory of ``x`` with ``src`` written from ``offset`` elements after its first element."""
    arguments = (x, src, tuple(size), tuple(stride), offset)
    # Types are given because complex tensors are passed as pairs.
    return ctx.call(
        Extern, "strided_scatter", arguments, None, (ctx.output,), layout_requirement="exact", reason=reason
    )[0]


def _are_disjoint(steps: Sequence[tuple[Size, Size]]) -> bool:
    """True when it is provable that no two elements of these sizes and strides share memory."""
    if not all(isinstance(n, int) and isinstance(s, int) for n, s in steps):
        return len(steps) == 1 and isinstance(steps[0][1], int)
    reach = 0
    for step, count in sorted((int(str(s)), int(str(n))) for n, s in steps):
        if step <= reach and count > 1:
            return False
        reach += (count - 1) * step
    return True
