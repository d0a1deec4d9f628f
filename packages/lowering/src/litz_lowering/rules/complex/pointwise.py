"""Complex pointwise operators: a table of formulas over complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from litz_ir.dtypes import compute_dtype
from litz_ir.scalar import Expr, build
from litz_lowering.contexts.context import Axes, Complex, LoweringContext, Tensor
from litz_lowering.contexts.registry import REGISTRY, RuleResult, complex_rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.complex import functions as fn
from litz_lowering.rules.complex.numbers import (
    Cx,
    choose,
    complex_pointwise,
    either,
    operand,
    promoted_part,
    truth,
)
from litz_lowering.rules.elementwise.pointwise import nan_to_num as real_nan_to_num

ComplexFormula = Callable[..., Cx | Num]


@dataclass(frozen=True, slots=True)
class ComplexRow:
    """Formula of a pointwise operator: operands are complex numbers, the result is complex, real or ``b1``."""

    body: ComplexFormula


ROWS: dict[str, ComplexRow] = {}
"""Table by overload name without namespace, filled while the module is imported."""


def row(body: ComplexFormula, *overloads: str, namespace: str = "aten") -> None:
    """Register a formula for complex uses of ``overloads`` of ``namespace``, given without the namespace."""
    entry = ComplexRow(body)

    def lower_row(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor | Complex:
        return _lower_complex(ctx, entry, args, kwargs)

    REGISTRY.add_complex(lower_row, *(f"{namespace}.{name}" for name in overloads))
    ROWS.update((name, entry) for name in overloads)


def _lower_complex(
    ctx: LoweringContext,
    entry: ComplexRow,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    position: int | None = None,
) -> Tensor | Complex:
    """Apply a row; ``position`` selects one of several results."""
    index = position or 0
    kind, is_complex = ctx.outputs[index], ctx.complex_outputs[index]
    if kind is None:
        raise ctx.error("a pointwise operator has to return a tensor")
    part = kind.dtype if is_complex else promoted_part(args)
    operands = [operand(ctx, argument, part) for argument in args]
    named = {key: operand(ctx, value, part) for key, value in kwargs.items()}

    def value(axes: Axes) -> Cx | Num:
        return entry.body(*(h(axes) for h in operands), **{key: h(axes) for key, h in named.items()})

    def body(axes: Axes) -> Expr:
        if not is_complex:
            return _real(value(axes)).expr
        found = value(axes[:-1])
        assert isinstance(found, Cx), "the formula of a complex result gives both parts"
        return either(axes[-1], found, kind.dtype)

    result = ctx.pointwise(body, kind, "" if position is None else str(position))
    return Complex(result) if is_complex else result


def _real(value: Cx | Num) -> Num:
    assert isinstance(value, Num), "the formula of a real result gives one value"
    return value


# --- unary ----------------------------------------

for _name in (
    "exp exp2 expm1 log log1p log2 log10 sqrt rsqrt reciprocal sigmoid silu sgn sin cos tan sinh cosh tanh asin acos "
    "atan asinh acosh atanh"
).split():
    row(getattr(fn, _name), f"{_name}.default")
row(lambda z: -z, "neg.default", "_neg_view.default")
row(lambda z: z, "positive.default", "resolve_conj.default", "resolve_neg.default")
row(lambda z: z.conjugate, "_conj.default", "conj.default", "_conj_physical.default", "conj_physical.default",
    "_conj_copy.default")  # fmt: skip
row(lambda z: z * z, "square.default")
row(lambda z: z.magnitude, "abs.default")
row(lambda z: z.phase, "angle.default")
row(lambda z: z.re, "real.default")
row(lambda z: z.im, "imag.default")
row(lambda z: f.isnan(z.re) | f.isnan(z.im), "isnan.default")
row(lambda z: f.isinf(z.re) | f.isinf(z.im), "isinf.default")
row(lambda z: ~(f.isnan(z.re) | f.isnan(z.im) | f.isinf(z.re) | f.isinf(z.im)), "isfinite.default")

# --- arithmetic ----------------------------------------


def _scaled(z: Cx, alpha: Cx | None) -> Cx:
    return z if alpha is None else alpha * z


row(lambda x, y, alpha=None: x + _scaled(y, alpha), "add.Tensor", "add.Scalar")
row(lambda x, y, alpha=None: x - _scaled(y, alpha), "sub.Tensor", "sub.Scalar")
row(lambda x, y, alpha=None: y - _scaled(x, alpha), "rsub.Tensor", "rsub.Scalar")
row(lambda x, y: x * y, "mul.Tensor", "mul.Scalar")
row(lambda x, y: x / y, "div.Tensor", "div.Scalar", "true_divide.Tensor")
row(lambda x, y: x.re.eq(y.re) & x.im.eq(y.im), "eq.Tensor", "eq.Scalar")
row(lambda x, y: x.re.ne(y.re) | x.im.ne(y.im), "ne.Tensor", "ne.Scalar")
row(lambda x, y, z: x * y + z, "fma.default", namespace="prims")
row(lambda x, y, z, value=None: x + _scaled(y, value) * z, "addcmul.default")
row(lambda x, y, z, value=None: x + _scaled(y, value) / z, "addcdiv.default")
row(lambda grad, y: grad * (y.literal(1.0) - y * y).conjugate, "tanh_backward.default")
row(lambda grad, y: grad * ((y.literal(1.0) - y) * y).conjugate, "sigmoid_backward.default")
row(fn.power, "pow.Tensor_Tensor", "pow.Scalar")


def _lerp(start: Cx, end: Cx, weight: Cx) -> Cx:
    near = weight.re * weight.re + weight.im * weight.im < 0.25
    span = end - start
    return choose(near, start + weight * span, end - span * (weight.literal(1.0) - weight))


row(_lerp, "lerp.Scalar", "lerp.Tensor")

_POWERS: dict[complex, Callable[[Cx], Cx]] = {
    0.0: lambda z: z.literal(1.0),
    0.5: fn.sqrt,
    -0.5: fn.rsqrt,
    1.0: lambda z: z,
    -1.0: fn.reciprocal,
    2.0: lambda z: z * z,
    -2.0: lambda z: fn.reciprocal(z * z),
    3.0: lambda z: z * z * z,
}
"""Exponents that eager computes without a logarithm."""


@complex_rule("aten.pow.Tensor_Scalar")
def power_of_number(ctx: LoweringContext, x: Any, exponent: Any) -> Tensor | Complex:
    """Power with a Python number as exponent."""
    short = _POWERS.get(exponent) if isinstance(exponent, int | float | complex) else None
    if short is not None:
        return _lower_complex(ctx, ComplexRow(short), (x,), {})
    return _lower_complex(ctx, ROWS["pow.Tensor_Tensor"], (x, exponent), {})


# --- parts and selection ----------------------------------------


@complex_rule("aten.complex.default")
def joined(ctx: LoweringContext, real: Tensor, imaginary: Tensor) -> Complex:
    """Complex numbers with these real and imaginary parts."""
    return complex_pointwise(ctx, lambda axes: Cx(Num(real.at(axes)), Num(imaginary.at(axes))))


@complex_rule("aten.polar.default")
def polar(ctx: LoweringContext, size: Tensor, angle: Tensor) -> Complex:
    """Complex numbers with these magnitudes and angles."""
    wide = compute_dtype(size.dtype)

    def value(axes: Axes) -> Cx:
        length, phase = (Num(build.cast(t.at(axes), wide)) for t in (size, angle))
        return Cx(length * f.unary("cos")(phase), length * f.unary("sin")(phase))

    return complex_pointwise(ctx, value)


@complex_rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def chosen(ctx: LoweringContext, condition: Tensor, a: Any, b: Any) -> Complex:
    """``a`` where the condition is true, else ``b``."""
    part = ctx.output.dtype
    holds, first, second = truth(ctx, condition), operand(ctx, a, part), operand(ctx, b, part)
    return complex_pointwise(ctx, lambda axes: choose(holds(axes), first(axes), second(axes)))


@complex_rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(ctx: LoweringContext, x: Complex, mask: Tensor, value: Any) -> RuleResult:
    """``value`` where the mask is true, else ``x``."""
    return chosen(ctx, mask, value, x)


@complex_rule("aten.nan_to_num.default")
def nan_to_num(
    ctx: LoweringContext, x: Complex, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Complex:  # fmt: skip
    """Replace NaN and infinities in each part."""

    def replaced(value: Expr) -> Num:
        return real_nan_to_num(Num(value), nan, posinf, neginf, result=x.dtype)

    return complex_pointwise(ctx, lambda axes: Cx(replaced(x.load(axes, 0)), replaced(x.load(axes, 1))))


def _logical(name: str, body: Callable[..., Num]) -> None:
    def lower_logical(ctx: LoweringContext, *args: Any) -> Tensor:
        operands = [truth(ctx, argument) for argument in args]
        return ctx.pointwise(lambda axes: body(*(h(axes) for h in operands)).expr)

    REGISTRY.add_complex(lower_logical, f"aten.logical_{name}.default")


_logical("not", lambda x: ~x)
_logical("and", lambda x, y: x & y)
_logical("or", lambda x, y: x | y)
_logical("xor", lambda x, y: x ^ y)

# --- lists ----------------------------------------


def _serve_each(entry: ComplexRow, *overloads: str) -> None:
    def lower_each(ctx: LoweringContext, *args: Any, **kwargs: Any) -> tuple[Tensor | Complex, ...]:
        return tuple(
            _lower_complex(ctx, entry, tuple(a[k] if isinstance(a, tuple) else a for a in args), kwargs, k)
            for k in range(len(ctx.outputs))
        )

    REGISTRY.add_complex(lower_each, *(f"aten._foreach_{name}" for name in overloads))


for _name in (
    "abs neg exp expm1 log log1p log2 log10 sqrt rsqrt reciprocal sigmoid sin cos tan sinh cosh tanh".split()
):
    _serve_each(ROWS[f"{_name}.default"], f"{_name}.default")
for _name in ("add", "sub", "mul", "div"):
    _serve_each(
        ROWS[f"{_name}.Tensor"], *(f"{_name}.{kind}" for kind in ("List", "Scalar", "ScalarList", "Tensor"))
    )
for _name in ("addcmul", "addcdiv"):
    _serve_each(ROWS[f"{_name}.default"], f"{_name}.Scalar", f"{_name}.ScalarList")
