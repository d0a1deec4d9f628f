"""Random numbers: drawn from ATen's generator in program order, or by Philox in kernels from a seed drawn once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from litz_ir.device import CPU
from litz_ir.dtypes import DType, b1, compute_dtype, f32, i64
from litz_ir.loops import Argument, Random
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, Term
from litz_lowering.contexts.context import Axes, Declined, Lowered, LoweringContext, ObjectArgument, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions.formula import Num, ceil, exp, log1p, maximum, remainder, tan, where
from litz_lowering.expressions.index_maps import flatten

_SEED_LOW, _SEED_HIGH = -(2**63), 2**63 - 1


def _draw(ctx: LoweringContext, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Call of the operator itself, on ATen's generator."""
    return ctx.call(Random, str(ctx.node.target), args, kwargs, token="rng", layout_requirement="exact")[0]


def _generated(ctx: LoweringContext, scalar: str, shape: tuple[Size, ...], dtype: DType) -> Any:
    """Body of random numbers, with one seed per operation and a counter per element."""
    kind = ctx.temporary(i64, ())
    arguments = (_SEED_LOW, _SEED_HIGH, ())
    keywords: dict[str, Argument] = {"dtype": i64, "device": kind.device}
    seed = ctx.draw("aten.randint.low", arguments, keywords, kind, "seed")

    def body(axes: Axes) -> Expr:
        return build.op(scalar, seed.load(()), build.index(flatten(axes, shape)), dtype=dtype)

    return body


def _from_aten(ctx: LoweringContext, generator: Any) -> bool:
    """True when ATen draws: under ``rng="eager"``, or where a generator was given."""
    return ctx.options.rng == "eager" or generator is not None


def _drawn(ctx: LoweringContext, *args: Any, generator: Any = None) -> Tensor:
    """Call of the operator with its arguments, and a generator where one was given."""
    return _draw(ctx, args, {} if generator is None else {"generator": generator})


def _standard(ctx: LoweringContext, scalar: str) -> Callable[[Axes], Num]:
    """Numbers of a standard distribution for each element of the result, in its dtype of computation."""
    kind = ctx.output
    body = _generated(ctx, scalar, kind.shape, compute_dtype(kind.dtype))
    return lambda axes: Num(body(axes))


def _parameter(ctx: LoweringContext, value: Any, axes: Axes) -> Num:
    """Parameter of a distribution at a point: a number, or an element of a tensor."""
    dtype = compute_dtype(ctx.output.dtype)
    return Num(build.cast(value.at(axes), dtype) if isinstance(value, Tensor) else ctx.number(value, dtype))


@rule(
    "aten.rand.default",
    "aten.rand_like.default",
    "aten.rand.generator",
    "aten.rand_like.generator",
    how="stream",
    moves=True,
)
def rand(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor:
    """Uniform on [0, 1). 16-bit floats get as many digits as they hold, so that none rounds up to 1."""
    if _from_aten(ctx, kwargs.get("generator")):
        return _draw(ctx, args, kwargs)
    return ctx.pointwise(_generated(ctx, "random_uniform", ctx.output.shape, ctx.output.dtype))


@rule(
    "aten.randn.default",
    "aten.randn_like.default",
    "aten.randn.generator",
    "aten.randn_like.generator",
    how="stream",
    moves=True,
)
def randn(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor:
    """Normal with mean 0 and deviation 1."""
    if _from_aten(ctx, kwargs.get("generator")):
        return _draw(ctx, args, kwargs)
    z = _standard(ctx, "random_normal")
    return ctx.pointwise(lambda axes: z(axes).expr)


@dataclass(frozen=True, slots=True)
class _Distribution:
    """A distribution that is computed from a standard one. Its shape is that of the operator's first argument."""

    overload: str
    """Overload of the operator."""
    standard: Literal["random_uniform", "random_normal"]
    """Scalar operation that draws the standard number."""
    formula: Callable[..., Num]
    """Function of the standard number and the parameters."""
    defaults: tuple[float, ...]
    """The operator's defaults of the parameters."""

    def draw(self, ctx: LoweringContext, x: Tensor, *given: Any, generator: Any = None) -> Tensor:
        """Lower the overload."""
        parameters = (*given, *self.defaults[len(given) :])
        if _from_aten(ctx, generator):
            return _drawn(ctx, x, *parameters, generator=generator)
        return _distributed(ctx, self.standard, self.formula, parameters)


def _distributed(
    ctx: LoweringContext, standard: str, formula: Callable[..., Num], parameters: tuple[Any, ...]
) -> Tensor:
    number = _standard(ctx, standard)
    return ctx.pointwise(
        lambda axes: formula(number(axes), *(_parameter(ctx, value, axes) for value in parameters)).expr
    )


def _shifted(z: Num, mean: Num, std: Num) -> Num:
    return mean + std * z


# All except the normal ones use the inverse of the distribution function. The geometric one counts the trials up to the
# first success: at least one.
_DISTRIBUTIONS = (
    _Distribution("aten.uniform.default", "random_uniform", lambda u, low, high: low + (high - low) * u, (0.0, 1.0)),
    _Distribution("aten.normal_functional.default", "random_normal", _shifted, (0.0, 1.0)),
    _Distribution("aten.log_normal.default", "random_normal", lambda z, mean, std: exp(mean + std * z), (1.0, 2.0)),
    _Distribution("aten.exponential.default", "random_uniform", lambda u, rate: -log1p(-u) / rate, (1.0,)),
    _Distribution(
        "aten.geometric.default", "random_uniform", lambda u, p: maximum(ceil(log1p(-u) / log1p(-p)), 1.0), ()
    ),
    _Distribution(
        "aten.cauchy.default", "random_uniform", lambda u, median, sigma: median + sigma * tan((u - 0.5) * math.pi),
        (0.0, 1.0),
    ),
)  # fmt: skip
for _row in _DISTRIBUTIONS:
    rule(_row.overload, how="stream")(_row.draw)


@rule(
    "aten.normal.Tensor_float", "aten.normal.float_Tensor", "aten.normal.Tensor_Tensor",
    "aten.normal.float_float", how="stream",
)  # fmt: skip
def normal(ctx: LoweringContext, mean: Any, std: Any = 1.0, *args: Any, **kwargs: Any) -> Tensor:
    """Normal, per element or of a given shape."""
    if _from_aten(ctx, kwargs.get("generator")):
        return _draw(ctx, (mean, std, *args), kwargs)
    return _distributed(ctx, "random_normal", _shifted, (mean, std))


@rule(
    "aten.randint.default", "aten.randint.generator", "aten.randint_like.default", "aten.randint.low",
    "aten.randint.low_generator", "aten.randint_like.low_dtype", "aten.random.from", "aten.random.to", how="stream",
    moves=True,
)  # fmt: skip
def randint(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor | Declined:
    """Integers in [low, high): 63 random bits modulo the width, with a bias of at most width / 2**63."""
    if _from_aten(ctx, kwargs.get("generator")):
        return _draw(ctx, args, kwargs)
    bounds = [a for a in args if not isinstance(a, Tensor | tuple)]
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    if not isinstance(low, int | Term) or not isinstance(high, int | Term):
        return Declined("the bounds are not integers")
    bits = _generated(ctx, "random_bits", ctx.output.shape, i64)

    def body(axes: Axes) -> Expr:
        first, last = Num(ctx.number(low, i64)), Num(ctx.number(high, i64))
        return (first + remainder(Num(bits(axes)) & (2**63 - 1), last - first)).expr

    return ctx.pointwise(body)


@rule(
    "aten.multinomial.default", "aten.randperm.default", "aten.randperm.generator", "aten.poisson.default",
    "aten.binomial.default", "aten._standard_gamma.default", "aten._sample_dirichlet.default",
    "aten.random.default", "aten.randint_like.Tensor", how="stream",
)  # fmt: skip
def drawn(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor:
    """Distribution that ATen draws under either option."""
    return _draw(ctx, args, kwargs)


@rule("aten.bernoulli.p", "aten.bernoulli.Tensor", how="stream")
def bernoulli(ctx: LoweringContext, x: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Ones with probability ``p``, else zeros."""
    if _from_aten(ctx, generator):
        return _drawn(ctx, x, p, generator=generator)
    return _coins(ctx, p)


@rule("aten.bernoulli.default", how="stream")
def bernoulli_of(ctx: LoweringContext, p: Tensor, *, generator: Any = None) -> Tensor:
    """Ones with the probability of each element, else zeros."""
    if _from_aten(ctx, generator):
        return _drawn(ctx, p, generator=generator)
    return _coins(ctx, p)


def _coins(ctx: LoweringContext, p: Any) -> Tensor:
    dtype = compute_dtype(p.dtype) if isinstance(p, Tensor) else f32
    u = _generated(ctx, "random_uniform", ctx.output.shape, dtype)

    def body(axes: Axes) -> Expr:
        chance = build.cast(p.at(axes), dtype) if isinstance(p, Tensor) else ctx.number(p, dtype)
        return build.op("lt", u(axes), chance)

    return ctx.pointwise(body)


@rule("aten.rrelu_with_noise_functional.default", how="stream")
def rrelu(
    ctx: LoweringContext,
    x: Tensor,
    noise: Tensor,
    lower: Any = 0.125,
    upper: Any = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> tuple[Tensor, ...]:
    """Negative elements of x scaled by slopes in [lower, upper), and the slopes. Without training, the mean slope is
    used."""
    arguments = (x, noise, lower, upper, training)
    if training and _from_aten(ctx, generator):
        given = arguments if generator is None else (*arguments, generator)
        return ctx.call(Random, str(ctx.node.target), given, token="rng", layout_requirement="exact")
    out, slopes_type = ctx.outputs
    assert out is not None and slopes_type is not None, "the operator returns two tensors"
    dtype = compute_dtype(x.dtype)

    def parameter(value: Any) -> Num:
        return Num(ctx.number(value, dtype))

    if training:
        u = _generated(ctx, "random_uniform", x.shape, dtype)

        def slope(axes: Axes) -> Expr:
            drawn_slope = parameter(lower) + (parameter(upper) - parameter(lower)) * Num(u(axes))
            return where(Num(build.cast(x.load(axes), dtype)) <= 0.0, drawn_slope, 1.0).expr

        slopes = ctx.pointwise(slope, slopes_type, "1")
        return ctx.pointwise(
            lambda axes: (
                (Num(build.cast(x.load(axes), dtype)) * Num(build.cast(slopes.load(axes), dtype))).expr
            ),
            out,
            "0",
        ), slopes

    def leaky(axes: Axes) -> Expr:
        value = Num(build.cast(x.load(axes), dtype))
        return where(value > 0.0, value, value * ((parameter(lower) + parameter(upper)) / 2.0)).expr

    return ctx.pointwise(leaky, out, "0"), ctx.pointwise(noise.load, slopes_type, "1")


@rule("aten.native_dropout.default", how="stream")
def dropout(
    ctx: LoweringContext, x: Tensor, p: float, train: bool | None
) -> tuple[Tensor, Tensor] | Declined:
    """Elements kept with probability ``1 - p`` and scaled, and the mask of these."""
    out, mask_type = ctx.outputs
    assert out is not None and mask_type is not None, "dropout returns two tensors"
    dtype, keep_probability = compute_dtype(x.dtype), 1.0 - p
    if train is False:
        return ctx.pointwise(x.load, out, "0"), ctx.pointwise(
            lambda axes: build.const(True, b1), mask_type, "1"
        )
    if ctx.options.rng == "eager" and out.device != CPU:
        return Declined(
            "eager's dropout on a GPU draws random numbers in an order of its own", is_intended=True
        )
    if ctx.options.rng == "eager":
        # Eager draws into new memory, which has the gaps and repetitions of x no more; their order decides.
        kind = replace(mask_type, dtype=x.dtype)
        is_dense = x.type.layout.strides == kind.layout.strides
        like = x if is_dense else ctx.pointwise(lambda axes: build.const(0, x.dtype), kind, "like")
        drawn_mask = ctx.draw("aten.bernoulli.p", (like, keep_probability), {}, kind, "drawn")
        mask = ctx.pointwise(lambda axes: build.cast(drawn_mask.load(axes), b1), mask_type, "1")
    else:
        uniform = _generated(ctx, "random_uniform", x.shape, dtype)
        mask = ctx.pointwise(lambda axes: (Num(uniform(axes)) < keep_probability).expr, mask_type, "1")
    scale = 0.0 if keep_probability == 0.0 else 1.0 / keep_probability

    def body(axes: Axes) -> Expr:
        return (Num(build.cast(x.load(axes), dtype)) * Num(build.cast(mask.load(axes), dtype)) * scale).expr

    return ctx.pointwise(body, out, "0"), mask


_DRAW_FROM = "draw_from"


@rule("higher_order.graphsafe_run_with_rng_state", how="stream")
def draw_from(
    ctx: LoweringContext, operator: Any, *args: Any, rng_state: ObjectArgument, **kwargs: Any
) -> Lowered:
    """Draw from a generator that is a graph input, and advance it; the device's default generator does not
    advance."""
    keywords = {**kwargs, "rng_state": rng_state}
    results = ctx.call(
        Random, _DRAW_FROM, (str(operator), *args), keywords, token="rng", layout_requirement="exact"
    )
    return results if ctx.unpack else results[0]


@rule("torch.random.get_rng_state")
def read_state(ctx: LoweringContext) -> Tensor:
    """State of the CPU's generator between the draws before and after it."""
    return ctx.call(Random, "torch.random.get_rng_state", (), {}, token="rng")[0]


@rule("torch.random.set_rng_state")
def write_state(ctx: LoweringContext, state: Tensor) -> None:
    """Set the generator's state for later draws."""
    ctx.call(Random, "torch.random.set_rng_state", (state,), {}, (), token="rng", layout_requirement="exact")
