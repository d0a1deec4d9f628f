"""Reductions and scans of complex tensors: sums by part, products as pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litz_ir.dtypes import DType, b1, compute_dtype
from litz_ir.loops import ReductionName, UserCombiner
from litz_ir.scalar import Expr, Param, build
from litz_ir.symbols import minimum
from litz_lowering.contexts.context import Axes, Complex, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import RuleResult, complex_rule
from litz_lowering.contexts.values import rejoined
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.complex.numbers import Cx, as_complex, complex_pointwise, truth
from litz_lowering.rules.indexing.view import dimension, dimensions
from litz_lowering.rules.reductions import reduce as real
from litz_lowering.rules.reductions.reduce import Dims, count, finished
from litz_lowering.rules.reductions.variance import moments


def _sum(
    ctx: LoweringContext, x: Any, dim: Dims, keepdim: bool, finish: Callable[[Num], Num] | None = None
) -> Complex:
    kind = ctx.output
    z = as_complex(ctx, x, kind)
    over, wide = dimensions(dim, z.rank), compute_dtype(kind.dtype)
    if finish is None and kind.dtype == wide:
        return Complex(ctx.reduce("sum", z.pairs, over, wide, keepdim=keepdim, type=kind))
    total = ctx.reduce("sum", z.pairs, over, wide, keepdim=keepdim, name="sum")
    return Complex(finished(ctx, total, finish or (lambda v: v)))


@complex_rule("aten.sum.default", "aten.sum.dim_IntList")
def sum_(
    ctx: LoweringContext, x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Complex | Declined:
    """Sum of each part."""
    return _sum(ctx, x, dim, keepdim) if ctx.complex_outputs[0] else Declined("the result of the sum is real")


@complex_rule("aten.mean.default", "aten.mean.dim")
def mean(
    ctx: LoweringContext, x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Complex | Declined:
    """Mean of each part."""
    if not ctx.complex_outputs[0]:
        return Declined("the result of the mean is real")
    over = dimensions(dim, x.rank)
    number = count(ctx, [x.shape[d] for d in over], compute_dtype(ctx.output.dtype))
    return _sum(ctx, x, dim, keepdim, lambda v: v / number)


@complex_rule("aten.trace.default")
def trace(ctx: LoweringContext, x: Complex) -> Complex:
    """Sum of the diagonal."""
    wide = compute_dtype(ctx.output.dtype)
    kind = ctx.temporary(wide, ctx.output.shape)
    (total,) = ctx.reduction(
        "sum",
        lambda axes, along: build.cast(x.load((*along, *along), axes[-1]), wide),
        [minimum(*x.shape)],
        [kind],
        ["sum"],
    )
    return Complex(ctx.pointwise(total.load))


# --- products ----------------------------------------


def _product(dtype: DType) -> UserCombiner:
    """Combiner of complex products."""
    a, b, c, d = (Num(Param(k, dtype)) for k in range(4))
    body = Cx(a, b) * Cx(c, d)
    identity = (build.const(1.0, dtype), build.const(0.0, dtype))
    return UserCombiner((body.re.expr, body.im.expr), identity, (a.expr, b.expr))


def _parts(z: Complex, wide: DType) -> Callable[[Axes], tuple[Expr, ...]]:
    return lambda index: tuple(build.cast(z.load(index, part), wide) for part in (0, 1))


def _joined(ctx: LoweringContext, parts: tuple[Tensor, ...]) -> Complex:
    real_part, imaginary = parts
    return complex_pointwise(ctx, lambda axes: Cx(Num(real_part.load(axes)), Num(imaginary.load(axes))))


@complex_rule("aten.prod.default", "aten.prod.dim_int")
def prod(
    ctx: LoweringContext, x: Any, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Complex | Declined:
    """Product over a dimension, or of all elements."""
    if not ctx.complex_outputs[0]:
        return Declined("the result of the product is real")
    z = as_complex(ctx, x, ctx.output)
    wide = compute_dtype(ctx.output.dtype)
    over = dimensions(dim, z.rank)
    kind = ctx.temporary(wide, ctx.output.shape[:-1])
    parts = _parts(z, wide)

    def body(outer: Axes, inner: Axes) -> tuple[Expr, ...]:
        return parts(rejoined(outer, inner, over, z.rank, keepdim))

    sizes = [z.shape[d] for d in over]
    return _joined(ctx, ctx.reduction(_product(wide), body, sizes, (kind, kind), ("real", "imaginary")))


@complex_rule("aten.cumsum.default")
def cumsum(ctx: LoweringContext, x: Any, dim: int, *, dtype: Any = None) -> Complex | Declined:
    """Cumulative sum of each part."""
    if not ctx.complex_outputs[0]:
        return Declined("the result of the sum is real")
    z = as_complex(ctx, x, ctx.output)
    wide = compute_dtype(ctx.output.dtype)
    if z.rank == 0:
        return Complex(ctx.pointwise(z.pairs.load))
    kind = ctx.temporary(wide, z.pairs.shape)
    (total,) = ctx.scan(
        "sum", lambda axes: build.cast(z.pairs.load(axes), wide), dimension(dim, z.rank), (kind,), ("sum",)
    )
    return Complex(ctx.pointwise(total.load))


@complex_rule("aten.cumprod.default")
def cumprod(ctx: LoweringContext, x: Any, dim: int, *, dtype: Any = None) -> Complex | Declined:
    """Cumulative product."""
    if not ctx.complex_outputs[0]:
        return Declined("the result of the product is real")
    z = as_complex(ctx, x, ctx.output)
    wide = compute_dtype(ctx.output.dtype)
    if z.rank == 0:
        return Complex(ctx.pointwise(z.pairs.load))
    kind = ctx.temporary(wide, z.shape)
    kinds, names = (kind, kind), ("real", "imaginary")
    return _joined(ctx, ctx.scan(_product(wide), _parts(z, wide), dimension(dim, z.rank), kinds, names))


# --- conditions, norms and variance ----------------------------------------


def _real_reduced(
    ctx: LoweringContext, combiner: ReductionName, x: Complex, dim: Dims, keepdim: bool
) -> Tensor:
    holds = truth(ctx, x)
    flags = ctx.pointwise(lambda axes: holds(axes).expr, ctx.temporary(b1, x.shape), "truth")
    return real.reduced(ctx, combiner, flags, dim, keepdim, b1)


@complex_rule("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(ctx: LoweringContext, x: Complex, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where any element is nonzero."""
    return _real_reduced(ctx, "any", x, dim, keepdim)


@complex_rule("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_(ctx: LoweringContext, x: Complex, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where all elements are nonzero."""
    return _real_reduced(ctx, "all", x, dim, keepdim)


@complex_rule("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(ctx: LoweringContext, x: Complex, dim: Dims = None) -> RuleResult:
    """Number of nonzero elements."""
    holds = truth(ctx, x)
    flags = ctx.pointwise(lambda axes: holds(axes).expr, ctx.temporary(b1, x.shape), "truth")
    return real.count_nonzero(ctx, flags, dim)


@complex_rule("aten.linalg_vector_norm.default")
def vector_norm(
    ctx: LoweringContext, x: Complex, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> RuleResult:  # fmt: skip
    """``ord``-norm of the magnitudes."""
    if dtype is not None:
        return Declined("the norm has a dtype argument")
    wide = compute_dtype(x.dtype)

    def size(axes: Axes) -> Expr:
        parts = _parts(x, wide)(axes)
        return Cx(Num(parts[0]), Num(parts[1])).magnitude.expr

    sizes = ctx.pointwise(size, ctx.temporary(wide, x.shape), "abs")
    return real.vector_norm(ctx, sizes, ord, dim, keepdim)


def _variance(
    ctx: LoweringContext, x: Complex, dim: Dims, correction: float | None, keepdim: bool
) -> Callable[[Axes], Num]:
    """Variance of a complex tensor: sum of the variances of the parts."""
    over, wide = dimensions(dim, x.rank), compute_dtype(x.dtype)
    _, spread = moments(ctx, x.pairs, over, keepdim, correction, wide) if over else (None, None)
    if spread is None:
        freedom = real.at_least_zero(1.0 - (1.0 if correction is None else float(correction)))
        return lambda axes: Num(build.const(0.0, wide)) / freedom
    variances = spread
    return lambda axes: Num(variances.load((*axes, 0))) + Num(variances.load((*axes, 1)))


@complex_rule("aten.var.correction")
def var(
    ctx: LoweringContext, x: Complex, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:  # fmt: skip
    """Sum of the variances of the parts; ``correction`` is subtracted from the count."""
    variance = _variance(ctx, x, dim, correction, keepdim)
    return ctx.pointwise(lambda axes: variance(axes).expr)


def _with_mean(
    ctx: LoweringContext, x: Complex, dim: Dims, correction: float | None, keepdim: bool, finish: Callable[[Num], Num]
) -> tuple[Tensor, Complex]:  # fmt: skip
    spread, center = ctx.outputs
    assert spread is not None and center is not None, "two tensors are returned"
    variance = _variance(ctx, x, dim, correction, keepdim)
    first = ctx.pointwise(lambda axes: finish(variance(axes)).expr, spread, "0")
    over, wide = dimensions(dim, x.rank), compute_dtype(x.dtype)
    number = count(ctx, [x.shape[d] for d in over], wide)
    total = ctx.reduce("sum", x.pairs, over, wide, keepdim=keepdim, name="total")
    return first, Complex(ctx.pointwise(lambda axes: (Num(total.load(axes)) / number).expr, center, "1"))


@complex_rule("aten.var_mean.correction")
def var_mean(
    ctx: LoweringContext, x: Complex, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Complex]:  # fmt: skip
    """Variance and mean."""
    return _with_mean(ctx, x, dim, correction, keepdim, lambda v: v)


@complex_rule("aten.std_mean.correction")
def std_mean(
    ctx: LoweringContext, x: Complex, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Complex]:  # fmt: skip
    """Standard deviation and mean."""
    return _with_mean(ctx, x, dim, correction, keepdim, f.sqrt)


@complex_rule("aten.std.correction")
def std(
    ctx: LoweringContext, x: Complex, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:  # fmt: skip
    """Square root of the variance."""
    variance = _variance(ctx, x, dim, correction, keepdim)
    return ctx.pointwise(lambda axes: f.sqrt(variance(axes)).expr)
