"""Random numbers: drawn from ATen's own stream in program order, or made in the kernels from a seed drawn once."""

from __future__ import annotations

from typing import Any

from litz_ir.dtypes import DType, b1, compute_dtype, i64
from litz_ir.loops.nodes import Argument, Random
from litz_ir.scalar import build
from litz_ir.scalar.expr import Expr
from litz_ir.symbols.term import Size
from litz_lowering.context import Axes, LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules.formula import Num
from litz_lowering.rules.index_maps import flatten

_SEED_LOW, _SEED_HIGH = -(2**63), 2**63 - 1


def _draw(ctx: LoweringContext, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The operator itself, on ATen's stream."""
    return ctx.call(Random, str(ctx.node.target), args, kwargs, token="rng", need="exact")[0]


def _generated(ctx: LoweringContext, scalar: str, shape: tuple[Size, ...], dtype: DType) -> Any:
    """A body of random numbers: one counter per element, one seed per operation."""
    kind = ctx.temporary(i64, ())
    arguments = (_SEED_LOW, _SEED_HIGH, ())
    keywords: dict[str, Argument] = {"dtype": i64, "device": kind.device}
    seed = ctx.draw("aten.randint.low", arguments, keywords, kind, "seed")

    def body(axes: Axes) -> Expr:
        return build.op(scalar, seed.load(()), build.index(flatten(axes, shape)), dtype=dtype)

    return body


def _distribution(ctx: LoweringContext, scalar: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    kind = ctx.output
    if ctx.options.rng == "eager" or kwargs.get("generator") is not None:
        return _draw(ctx, args, kwargs)
    return ctx.pointwise(_generated(ctx, scalar, kind.shape, compute_dtype(kind.dtype)))


@rule("aten.rand.default", "aten.rand_like.default", "aten.rand.generator", "aten.rand_like.generator")
def rand(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor:
    """Uniform on [0, 1)."""
    return _distribution(ctx, "random_uniform", args, kwargs)


@rule("aten.randn.default", "aten.randn_like.default", "aten.randn.generator", "aten.randn_like.generator")
def randn(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor:
    """Normal with mean 0 and deviation 1."""
    return _distribution(ctx, "random_normal", args, kwargs)


@rule(
    "aten.randint.default", "aten.randint.generator", "aten.randint.low", "aten.randint.low_generator",
    "aten.randint_like.default", "aten.randint_like.low_dtype", "aten.uniform.default", "aten.normal.Tensor_float",
    "aten.normal.float_Tensor", "aten.normal.Tensor_Tensor", "aten.normal.float_float",
    "aten.normal_functional.default", "aten.exponential.default", "aten.multinomial.default",
    "aten.randperm.default", "aten.randperm.generator",
    "aten.bernoulli.Tensor", "aten.bernoulli.default", "aten.poisson.default", "aten.geometric.default",
    "aten.cauchy.default", "aten.log_normal.default",
)  # fmt: skip
def drawn(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor:
    """A distribution that is drawn from ATen's stream under either choice."""
    return _draw(ctx, args, kwargs)


@rule("aten.bernoulli.p")
def bernoulli(ctx: LoweringContext, x: Tensor, p: float = 0.5, *, generator: Any = None) -> Tensor:
    """Ones with probability ``p``, else zeros."""
    if ctx.options.rng == "eager" or generator is not None:
        return _draw(ctx, (x, p), {} if generator is None else {"generator": generator})
    uniform = _generated(ctx, "random_uniform", ctx.output.shape, compute_dtype(ctx.output.dtype))
    return ctx.pointwise(lambda axes: build.cast((Num(uniform(axes)) < p).expr, ctx.output.dtype))


@rule("aten.native_dropout.default")
def dropout(ctx: LoweringContext, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(elements kept with probability ``1 - p`` and scaled up, the mask of those kept)."""
    out, mask_type = ctx.outputs
    assert out is not None and mask_type is not None, "dropout returns two tensors"
    dtype, keep = compute_dtype(x.dtype), 1.0 - p
    if train is False:
        return ctx.pointwise(x.load, out, "0"), ctx.pointwise(
            lambda axes: build.const(True, b1), mask_type, "1"
        )
    if ctx.options.rng == "eager":
        drawn_mask = ctx.draw("aten.bernoulli.p", (x, keep), {}, x.type, "kept")
        mask = ctx.pointwise(lambda axes: build.cast(drawn_mask.load(axes), b1), mask_type, "1")
    else:
        uniform = _generated(ctx, "random_uniform", x.shape, dtype)
        mask = ctx.pointwise(lambda axes: (Num(uniform(axes)) < keep).expr, mask_type, "1")
    scale = 0.0 if keep == 0.0 else 1.0 / keep

    def body(axes: Axes) -> Expr:
        return (Num(build.cast(x.load(axes), dtype)) * Num(build.cast(mask.load(axes), dtype)) * scale).expr

    return ctx.pointwise(body, out, "0"), mask
