"""Pooling: reductions over windows. Gradients are gathered from the windows that cover a point; those of maxima in
planes are scattered on a CPU, which visits each window once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import prod
from typing import Any

from litz_ir.device import CPU
from litz_ir.dtypes import DType, compute_dtype, i64
from litz_ir.loops import TensorType
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, Term, add, floordiv, mod, mul, product, summands
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions.index_maps import flatten
from litz_lowering.expressions.windows import (
    Adaptive,
    Strided,
    Windows,
    all_cover,
    all_inside,
    count_of,
    coverings,
    positions,
)
from litz_lowering.rules.indexing.view import dimension
from litz_lowering.rules.nn.window_maximum import WindowSearch, added_at_maxima, largest

Sizes = Sequence[int]


def _each(values: Any, rank: int, default: Sequence[int] | None = None) -> list[int]:
    """One value per spatial dimension: a single value is repeated, an empty list means ``default``."""
    listed = list(values) if isinstance(values, list | tuple) else [values]
    if not listed and default is not None:
        return list(default)
    return listed * rank if len(listed) == 1 else listed


def _strided(
    x: Sequence[Size], out: Sequence[Size], kernel: Any, stride: Any, padding: Any, dilation: Any = 1
) -> list[Strided] | None:
    """Windows over the last dimensions of ``x``; None when a parameter is symbolic."""
    rank = len(out)
    extents = _each(kernel, rank)
    rows = (
        extents, _each(stride, rank, extents), _each(padding, rank), _each(dilation, rank),
    )  # fmt: skip
    if any(isinstance(value, Term) for row in rows for value in row):
        return None
    return [
        Strided(size, count, *parameters)
        for size, count, *parameters in zip(x[len(x) - rank :], out, *rows, strict=True)
    ]


def _adaptive(x: Sequence[Size], out: Sequence[Size]) -> list[Adaptive] | None:
    """Windows over the last dimensions of ``x``; None when their lengths are not static. Where there is none, one
    stands for them, which no loop reads."""
    counts = [1 if count == 0 else count for count in out]
    windows = [Adaptive(size, count) for size, count in zip(x[len(x) - len(out) :], counts, strict=True)]
    return windows if all(w.known for w in windows) else None


_MAX_DIVISOR_TERMS = 8
"""Largest number of summands of a divisor that is one index term; longer ones are multiplied in the kernel."""

_SYMBOLIC = Declined("the sizes of pooling windows are symbolic")


def _result(ctx: LoweringContext, position: int) -> TensorType:
    kind = ctx.outputs[position]
    if kind is None:
        raise ctx.error(f"result {position} is not a tensor")
    return kind


# --- maximum ----------------------------------------


@rule("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool(
    ctx: LoweringContext,
    x: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor | None, ...] | Declined:
    """Maximum of each window, and its row-major position in the spatial dimensions."""
    spatial = _spatial(ctx)
    out = _result(ctx, 0).shape
    windows = _strided(x.shape, out[len(out) - spatial :], kernel_size, stride, padding, dilation)
    return _SYMBOLIC if windows is None else _maximum(ctx, x, windows)


@rule("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(
    ctx: LoweringContext, x: Tensor, output_size: Sequence[Size]
) -> tuple[Tensor | None, ...] | Declined:
    """Maximum of each window, and its row-major position in the spatial dimensions."""
    windows = _adaptive(x.shape, output_size)
    return _SYMBOLIC if windows is None else _maximum(ctx, x, windows)


def _spatial(ctx: LoweringContext) -> int:
    return 3 if "pool3d" in str(ctx.node.target) else 2 if "pool2d" in str(ctx.node.target) else 1


def _is_read(ctx: LoweringContext, position: int) -> bool:
    """True unless every user of the node selects another of its results."""
    return any(user.target is not operator.getitem or user.args[1] == position for user in ctx.node.users)


def _maximum(ctx: LoweringContext, x: Tensor, windows: Sequence[Windows]) -> tuple[Tensor | None, ...]:
    """Largest element of each window, and its position where that is read."""
    wide, spatial = compute_dtype(x.dtype), len(windows)
    sizes = [w.size for w in windows]
    kind, lead = _result(ctx, 0), x.rank - spatial

    def value(outer: Axes, steps: Axes) -> Expr:
        return x.load((*outer[:lead], *positions(windows, outer[lead:], steps)))

    def position(outer: Axes, steps: Axes) -> Size:
        return flatten(positions(windows, outer[lead:], steps), sizes)

    def inside(outer: Axes, steps: Axes) -> Expr:
        return all_inside(windows, outer[lead:], steps)

    def first(outer: Axes) -> Size:
        return flatten([w.first(o) for w, o in zip(windows, outer[lead:])], sizes)

    over = [w.extent for w in windows]
    search = WindowSearch(over, value, position, inside, first, product(sizes))
    if _is_read(ctx, 1):
        return largest(ctx, search)
    accumulator = kind if kind.dtype == wide else ctx.temporary(wide, kind.shape)
    (best,) = ctx.reduction(
        "max", search.element, over, (accumulator,), ("0" if accumulator is kind else "wide",)
    )
    return best if accumulator is kind else ctx.pointwise(best.load, kind, "0"), None


@rule("aten.max_pool2d_with_indices_backward.default", "aten.max_pool3d_with_indices_backward.default")
def max_pool_backward(
    ctx: LoweringContext,
    grad: Tensor,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor | Declined:
    """Add the gradient of each window to the element that was its maximum."""
    spatial = _spatial(ctx)
    windows = _strided(x.shape, grad.shape[grad.rank - spatial :], kernel_size, stride, padding, dilation)
    return _SYMBOLIC if windows is None else _maximum_backward(ctx, grad, windows, indices)


@rule("aten.adaptive_max_pool2d_backward.default", "aten.adaptive_max_pool3d_backward.default")
def adaptive_max_pool_backward(
    ctx: LoweringContext, grad: Tensor, x: Tensor, indices: Tensor
) -> Tensor | Declined:
    """Add the gradient of each window to the element that was its maximum."""
    windows = _adaptive(x.shape, grad.shape[grad.rank - _spatial(ctx) :])
    return _SYMBOLIC if windows is None else _maximum_backward(ctx, grad, windows, indices)


def _maximum_backward(
    ctx: LoweringContext, grad: Tensor, windows: Sequence[Windows], indices: Tensor
) -> Tensor:
    lead, wide = grad.rank - len(windows), compute_dtype(grad.dtype)
    sizes = [w.size for w in windows]
    # Lanes are adjacent channels where those are contiguous, and gather as fast as they scatter.
    if grad.device == CPU and ctx.output.layout.strides[-1] == 1:
        return added_at_maxima(ctx, grad, sizes, indices)

    def share(point: Axes, window: Axes) -> Expr:
        is_maximum = build.op("eq", indices.load(window), build.index(flatten(point[lead:], sizes)))
        return build.where(is_maximum, build.cast(grad.load(window), wide), build.const(0, wide))

    return _gathered(ctx, windows, share, wide)


def _gathered(
    ctx: LoweringContext, windows: Sequence[Windows], share: Callable[[Axes, Axes], Expr], wide: DType
) -> Tensor:
    """Sum of ``share(point, window)`` over the windows that cover each point of the result."""
    kind = ctx.output
    lead = len(kind.shape) - len(windows)

    def body(point: Axes, numbers: Axes) -> Expr:
        window = (*point[:lead], *coverings(windows, point[lead:], numbers))
        covered = all_cover(windows, point[lead:], numbers)
        return build.masked(covered, share(point, window), build.const(0, wide))

    over = [w.cover for w in windows]
    if all(cover == 1 for cover in over):
        return ctx.pointwise(lambda point: body(point, (0,) * len(windows)))
    if kind.dtype == wide:
        return ctx.reduction("sum", body, over, (kind,))[0]
    (total,) = ctx.reduction("sum", body, over, (ctx.temporary(wide, kind.shape),), ("total",))
    return ctx.pointwise(total.load)


# --- average ----------------------------------------


@rule("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    ctx: LoweringContext,
    x: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor | Declined:
    """Mean of each window; padding counts as zeros or not at all."""
    out = ctx.output.shape[len(ctx.output.shape) - _spatial(ctx) :]
    windows = _strided(x.shape, out, kernel_size, stride, padding)
    if windows is None:
        return _SYMBOLIC
    return _average(ctx, x, windows, count_include_pad, divisor_override)


@rule(
    "aten._adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool3d.default",
    "aten.adaptive_avg_pool1d.default",
)
def adaptive_avg_pool(ctx: LoweringContext, x: Tensor, output_size: Sequence[Size]) -> Tensor | Declined:
    """Mean of each window."""
    windows = _adaptive(x.shape, output_size)
    return _SYMBOLIC if windows is None else _average(ctx, x, windows, False, None)


def _divisor(
    ctx: LoweringContext,
    windows: Sequence[Windows],
    outer: Axes,
    padded: bool,
    given: int | None,
    dtype: DType,
) -> Expr:
    if given is not None:
        return build.const(given, dtype)
    counts = [count_of(o, w, padded) for w, o in zip(windows, outer, strict=True)]
    # Terms are expanded. In three dimensions of symbolic sizes that is a sum of 64 products, a megabyte of code.
    if prod(len(summands(each)) for each in counts) <= _MAX_DIVISOR_TERMS:
        return ctx.number(product(counts), dtype)
    return build.cast(reduce(partial(build.op, "mul"), map(build.index, counts)), dtype)


def _average(
    ctx: LoweringContext, x: Tensor, windows: Sequence[Windows], padded: bool, given: int | None
) -> Tensor:
    kind = ctx.output
    wide = compute_dtype(x.dtype) if x.dtype.is_float else i64
    lead = x.rank - len(windows)

    def body(outer: Axes, steps: Axes) -> Expr:
        element = x.load((*outer[:lead], *positions(windows, outer[lead:], steps)))
        inside = all_inside(windows, outer[lead:], steps)
        return build.masked(inside, build.cast(element, wide), build.const(0, wide))

    over = [w.extent for w in windows]
    (total,) = ctx.reduction("sum", body, over, (ctx.temporary(wide, kind.shape),), ("sum",))

    def mean(outer: Axes) -> Expr:
        divisor = _divisor(ctx, windows, outer[lead:], padded, given, wide)
        return build.op("div" if wide.is_float else "trunc_div", total.load(outer), divisor)

    return ctx.pointwise(mean)


@rule("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def avg_pool_backward(
    ctx: LoweringContext,
    grad: Tensor,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor | Declined:
    """Distribute the gradient of each window over its elements."""
    out = grad.shape[grad.rank - _spatial(ctx) :]
    windows = _strided(x.shape, out, kernel_size, stride, padding)
    if windows is None:
        return _SYMBOLIC
    return _average_backward(ctx, grad, windows, count_include_pad, divisor_override)


@rule("aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool_backward(ctx: LoweringContext, grad: Tensor, x: Tensor) -> Tensor | Declined:
    """Distribute the gradient of each window over its elements."""
    windows = _adaptive(x.shape, grad.shape[grad.rank - _spatial(ctx) :])
    return _SYMBOLIC if windows is None else _average_backward(ctx, grad, windows, False, None)


def _average_backward(
    ctx: LoweringContext, grad: Tensor, windows: Sequence[Windows], padded: bool, given: int | None
) -> Tensor:
    lead, wide = grad.rank - len(windows), compute_dtype(grad.dtype)

    def share(point: Axes, window: Axes) -> Expr:
        value = build.cast(grad.load(window), wide)
        return build.op("div", value, _divisor(ctx, windows, window[lead:], padded, given, wide))

    return _gathered(ctx, windows, share, wide)


# --- overlapping windows ----------------------------------------


@rule("aten.unfold_backward.default")
def unfold_backward(
    ctx: LoweringContext, grad: Tensor, input_sizes: Sequence[Size], dim: int, size: int, step: int
) -> Tensor | Declined:
    """Sum of the gradients of all windows that contain an element."""
    if not input_sizes:
        return Declined("unfold of a 0-d tensor")
    d = dimension(dim, len(input_sizes))
    windows = Strided(input_sizes[d], grad.shape[d], size, step, 0)
    wide, kind = compute_dtype(grad.dtype), ctx.output

    def body(point: Axes, numbers: Axes) -> Expr:
        window = windows.covering(point[d], numbers[0])
        offset = add(point[d], mul(windows.start(window), -1))
        value = grad.load((*point[:d], window, *point[d + 1 :], offset))
        covered = build.logical_and(*windows.covers(point[d], numbers[0]))
        return build.masked(covered, build.cast(value, wide), build.const(0, wide))

    if windows.cover == 1:
        return ctx.pointwise(lambda point: body(point, (0,)))
    total = ctx.reduction("sum", body, (windows.cover,), (ctx.temporary(wide, kind.shape),), ("total",))[0]
    return ctx.pointwise(total.load)


@rule("aten.col2im.default")
def col2im(
    ctx: LoweringContext, x: Tensor, output_size: Sequence[Size], kernel_size: Sequence[int],
    dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int],
) -> Tensor | Declined:  # fmt: skip
    """Sum of the columns' elements that windows have at each point."""
    if any(isinstance(value, Term) for row in (kernel_size, dilation, padding, stride) for value in row):
        return _SYMBOLIC
    windows: list[Strided] = []
    for size, k, d, p, s in zip(output_size, kernel_size, dilation, padding, stride, strict=True):
        count = add(floordiv(add(size, 2 * p - d * (k - 1) - 1), s), 1)
        windows.append(Strided(size, count, k, s, p, d))
    wide, kind = compute_dtype(x.dtype), ctx.output

    def body(point: Axes, numbers: Axes) -> Expr:
        *lead, channel = point[:-2]
        column: Size = channel
        window: Size = 0
        conditions: list[Expr] = []
        for w, element, number in zip(windows, point[-2:], numbers, strict=True):
            offset = add(mod(add(element, w.padding), w.stride), mul(number, w.stride))
            column = add(mul(column, w.kernel), floordiv(offset, w.dilation))
            window = add(mul(window, w.count), w.covering(element, number))
            conditions += w.covers(element, number)
            if w.dilation > 1:
                conditions.append(build.op("eq", build.index(mod(offset, w.dilation)), build.index(0)))
        value = build.cast(x.load((*lead, column, window)), wide)
        return build.masked(build.logical_and(*conditions), value, build.const(0, wide))

    over = [w.cover for w in windows]
    if all(cover == 1 for cover in over):
        return ctx.pointwise(lambda point: body(point, (0, 0)))
    (total,) = ctx.reduction("sum", body, over, (ctx.temporary(wide, kind.shape),), ("total",))
    return ctx.pointwise(total.load)
