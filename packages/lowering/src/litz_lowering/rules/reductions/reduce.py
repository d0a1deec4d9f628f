"""Reductions: sums accumulate in eager's dtype and are rounded once at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from litz_ir.dtypes import DType, accumulate_dtype, b1, compute_dtype, i64
from litz_ir.loops import ReductionName, TensorType
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, bounds, minimum, product
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.contexts.values import rejoined
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.expressions.index_maps import flatten
from litz_lowering.rules.indexing.view import dimension, dimensions

Dims = Sequence[int] | int | None


def finished(
    ctx: LoweringContext, total: Tensor, finish: Callable[[Num], Num], type: TensorType | None = None
) -> Tensor:
    """Apply ``finish`` to every element of an intermediate, as the node's result."""
    return ctx.pointwise(lambda axes: finish(Num(total.load(axes))).expr, type)


def reduced(
    ctx: LoweringContext,
    combiner: ReductionName,
    x: Tensor,
    dims: Dims,
    keepdim: bool,
    dtype: DType,
    body: Callable[[Num], Num] = lambda v: v,
    finish: Callable[[Num], Num] | None = None,
    result: TensorType | None = None,
) -> Tensor:
    """Combine ``body(x)`` over ``dims`` in ``dtype``, then apply ``finish``; the node's result, in its dtype."""
    kind = result or ctx.output
    over = dimensions(dims, x.rank)

    def element(index: Axes) -> Expr:
        return body(Num(x.load(index))).expr

    if finish is None and kind.dtype == dtype:
        return ctx.reduce(combiner, x, over, dtype, body=element, keepdim=keepdim, type=kind)
    total = ctx.reduce(combiner, x, over, dtype, body=element, keepdim=keepdim, name=combiner)
    return finished(ctx, total, finish or (lambda v: v), kind)


def count(ctx: LoweringContext, sizes: Iterable[Size], dtype: DType) -> Num | float:
    """Number of elements combined into one, as a Python number where static."""
    number = product(sizes)
    return float(number) if isinstance(number, int) else Num(ctx.number(number, dtype))


def reduced_sizes(x: Tensor, dims: Dims) -> list[Size]:
    """Sizes of the reduced dimensions."""
    return [x.shape[d] for d in dimensions(dims, x.rank)]


def at_least_zero(number: Num | float) -> Num | float:
    """The number, or zero where it is negative."""
    return f.maximum(number, 0.0) if isinstance(number, Num) else max(number, 0.0)


# --- sums and products


@rule("aten.sum.default", "aten.sum.dim_IntList")
def sum_(
    ctx: LoweringContext, x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """Sum over ``dim`` of elements cast to the result's dtype."""
    out = ctx.output.dtype
    return reduced(ctx, "sum", x, dim, keepdim, accumulate_dtype(out), lambda v: v.to(out))


@rule("aten.nansum.default")
def nansum(
    ctx: LoweringContext, x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """Sum with NaN counted as zero."""
    out = ctx.output.dtype

    def body(v: Num) -> Num:
        return (f.where(f.isnan(v), 0.0, v) if v.dtype.is_float else v).to(out)

    return reduced(ctx, "sum", x, dim, keepdim, accumulate_dtype(out), body)


@rule("aten.mean.default", "aten.mean.dim")
def mean(
    ctx: LoweringContext, x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """Sum divided by the number of elements, rounded once."""
    out = ctx.output.dtype
    wide = compute_dtype(out)
    total = count(ctx, reduced_sizes(x, dim), wide)
    return reduced(ctx, "sum", x, dim, keepdim, wide, lambda v: v.to(out), lambda v: v / total)


@rule("aten.prod.default", "aten.prod.dim_int")
def prod(
    ctx: LoweringContext, x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """Product over ``dim``."""
    out = ctx.output.dtype
    return reduced(ctx, "prod", x, dim, keepdim, accumulate_dtype(out), lambda v: v.to(out))


@rule("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(ctx: LoweringContext, x: Tensor, dim: Dims = None) -> Tensor:
    """Number of nonzero elements."""
    return reduced(ctx, "sum", x, dim, False, i64, lambda v: v.to(b1).to(i64))


@rule("aten.trace.default")
def trace(ctx: LoweringContext, x: Tensor) -> Tensor:
    """Sum of the diagonal."""
    out = ctx.output.dtype
    wide = accumulate_dtype(out)
    kind = ctx.output if out == wide else ctx.temporary(wide, ())
    (total,) = ctx.reduction(
        "sum",
        lambda axes, along: build.cast(build.cast(x.load((*along, *along)), out), wide),
        [minimum(*x.shape)],
        [kind],
        ["" if kind is ctx.output else "sum"],
    )
    return total if kind is ctx.output else ctx.pointwise(total.load)


# --- extremes and truth


def require_elements(ctx: LoweringContext, x: Tensor, dims: Iterable[int], *, named: bool) -> None:
    """Raise at run time where a dimension to select an element from is empty; ``named``: the caller gave it."""
    for d in dims if x.rank else ():
        low = bounds(x.shape[d], ctx.builder.symbols.ranges()).low
        if isinstance(low, int) and low > 0:
            continue
        some = build.op("ne", build.index(x.shape[d]), build.index(0))
        if named:
            message = f"{_operator(ctx)}(): Expected reduction dim {d} to have non-zero size."
            ctx.check(some, message, "IndexError")
        else:
            message = f"{_operator(ctx)}(): Expected reduction dim to be specified for input.numel() == 0."
            ctx.check(some, message, "IndexError" if "arg" in _operator(ctx) else "RuntimeError")


def _operator(ctx: LoweringContext) -> str:
    return ctx.origin.operation.split(".")[1]


def _extremum(ctx: LoweringContext, name: str, x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    require_elements(ctx, x, dimensions(dim, x.rank), named=dim not in (None, ()))
    if x.dtype.is_bool:
        return reduced(ctx, "any" if name == "max" else "all", x, dim, keepdim, b1)
    combiner: ReductionName = "max" if name == "max" else "min"
    return reduced(ctx, combiner, x, dim, keepdim, compute_dtype(x.dtype))


@rule("aten.amax.default", "aten.max.default")
def amax(ctx: LoweringContext, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Largest element; NaN propagates."""
    return _extremum(ctx, "max", x, dim, keepdim)


@rule("aten.amin.default", "aten.min.default")
def amin(ctx: LoweringContext, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Smallest element; NaN propagates."""
    return _extremum(ctx, "min", x, dim, keepdim)


@rule("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(ctx: LoweringContext, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where any element is true."""
    return reduced(ctx, "any", x, dim, keepdim, b1)


@rule("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_(ctx: LoweringContext, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where all elements are true."""
    return reduced(ctx, "all", x, dim, keepdim, b1)


def _arg(
    ctx: LoweringContext, name: ReductionName, x: Tensor, dims: tuple[int, ...], keepdim: bool,
    types: tuple[TensorType | None, TensorType], names: tuple[str, str],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Extreme value, in the dtype of comparison, and its row-major position in ``dims``."""
    compared = i64 if x.dtype.is_bool else compute_dtype(x.dtype)
    sizes = [x.shape[d] for d in dims]

    def body(outer: Axes, inner: Axes) -> tuple[Expr, ...]:
        index = rejoined(outer, inner, dims, x.rank, keepdim)
        return build.cast(x.load(index), compared), build.index(flatten(inner, sizes))

    value, position = types
    if value is None or value.dtype != compared:
        value = ctx.temporary(compared, position.shape, x.device)
        names = ("value", names[1])
    first, second = ctx.reduction(name, body, sizes, (value, position), names)
    return first, second


def _arg_rule(
    ctx: LoweringContext, name: ReductionName, x: Tensor, dim: int | None, keepdim: bool
) -> Tensor | Declined:
    if x.dtype.is_bool:
        return Declined("eager raises an error for bool tensors", is_intended=True)
    dims = dimensions(None if dim is None else (dim,), x.rank)
    require_elements(ctx, x, dims, named=dim is not None)
    return _arg(ctx, name, x, dims, keepdim, (None, ctx.output), ("value", ""))[1]


@rule("aten.argmax.default")
def argmax(
    ctx: LoweringContext, x: Tensor, dim: int | None = None, keepdim: bool = False
) -> Tensor | Declined:
    """Position of the largest element."""
    return _arg_rule(ctx, "argmax", x, dim, keepdim)


@rule("aten.argmin.default")
def argmin(
    ctx: LoweringContext, x: Tensor, dim: int | None = None, keepdim: bool = False
) -> Tensor | Declined:
    """Position of the smallest element."""
    return _arg_rule(ctx, "argmin", x, dim, keepdim)


def _with_position(
    ctx: LoweringContext, name: ReductionName, x: Tensor, dim: int, keepdim: bool
) -> tuple[Tensor, Tensor]:  # fmt: skip
    value, position = ctx.outputs
    assert value is not None and position is not None, "max and min over a dimension return two tensors"
    dims = (dimension(dim, x.rank),) if x.rank else ()
    require_elements(ctx, x, dims, named=True)
    first, second = _arg(ctx, name, x, dims, keepdim, (value, position), ("0", "1"))
    if first.dtype != value.dtype:
        first = ctx.pointwise(first.load, value, "0")
    return first, second


@rule("aten.max.dim")
def max_dim(ctx: LoweringContext, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Largest elements and their positions."""
    return _with_position(ctx, "argmax", x, dim, keepdim)


@rule("aten.min.dim")
def min_dim(ctx: LoweringContext, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Smallest elements and their positions."""
    return _with_position(ctx, "argmin", x, dim, keepdim)


@rule("aten.aminmax.default")
def aminmax(
    ctx: LoweringContext, x: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Smallest and largest elements."""
    low, high = ctx.outputs
    assert low is not None and high is not None, "aminmax returns two tensors"
    over = dimensions(None if dim is None else (dim,), x.rank)
    if low.dtype.is_low_precision:
        wide = compute_dtype(low.dtype)
        extremes = [ctx.reduce(c, x, over, wide, keepdim=keepdim, name=c) for c in _EXTREMES]
        first, second = (ctx.pointwise(p.load, k, n) for p, k, n in zip(extremes, (low, high), "01"))
    else:
        first, second = (
            ctx.reduce(c, x, over, x.dtype, keepdim=keepdim, type=k, name=n)
            for c, k, n in zip(_EXTREMES, (low, high), "01")
        )
    return first, second


_EXTREMES: tuple[ReductionName, ReductionName] = ("min", "max")

# --- norms


@rule("aten.linalg_vector_norm.default")
def linalg_vector_norm(
    ctx: LoweringContext,
    x: Tensor,
    ord: float | Size = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor | Declined:
    """Vector norm of an order that is a number."""
    if not isinstance(ord, int | float):
        return Declined("the order of the norm is a symbol")
    return vector_norm(ctx, x, ord, dim, keepdim)


def vector_norm(
    ctx: LoweringContext, x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False
) -> Tensor:
    """``ord``-norm of the elements."""
    wide = compute_dtype(ctx.output.dtype)

    def magnitude(v: Num) -> Num:
        return f.absolute(v.to(wide))

    if ord in (math.inf, -math.inf):
        return reduced(ctx, "max" if ord > 0 else "min", x, dim, keepdim, wide, magnitude)
    if ord == 0:
        return reduced(ctx, "sum", x, dim, keepdim, wide, lambda v: v.to(b1).to(wide))
    if ord == 1:
        return reduced(ctx, "sum", x, dim, keepdim, wide, magnitude)
    if ord == 2:
        return reduced(ctx, "sum", x, dim, keepdim, wide, lambda v: v.to(wide) * v.to(wide), f.sqrt)
    return reduced(
        ctx, "sum", x, dim, keepdim, wide,
        lambda v: f.power(magnitude(v), float(ord)), lambda v: f.power(v, 1.0 / ord),
    )  # fmt: skip


@rule("aten.logsumexp.default")
def logsumexp(ctx: LoweringContext, x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """Logarithm of the sum of exponentials, relative to the largest element."""
    wide = compute_dtype(ctx.output.dtype)
    over = dimensions(dim, x.rank)
    top = ctx.reduce("max", x, over, wide, keepdim=True, name="max")

    def shift(index: Axes) -> Num:
        largest = Num(top.at(index))
        return f.where(f.isinf(largest), 0.0, largest)

    def term(index: Axes) -> Expr:
        return f.exp(Num(build.cast(x.load(index), wide)) - shift(index)).expr

    total = ctx.reduce("sum", x, over, wide, body=term, keepdim=keepdim, name="sum")

    def result(axes: Axes) -> Expr:
        outer_terms = iter(axes)
        index = axes if keepdim else tuple(0 if d in over else next(outer_terms) for d in range(x.rank))
        return (f.log(Num(total.load(axes))) + shift(index)).expr

    return ctx.pointwise(result)
