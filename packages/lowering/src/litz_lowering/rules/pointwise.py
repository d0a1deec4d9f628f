"""Pointwise operators: a table of formulas, each with the rule that gives the dtype it is computed in."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from litz_ir.dtypes import DType, b1, compute_dtype
from litz_ir.scalar import build
from litz_ir.scalar.expr import Expr
from litz_ir.symbols.term import Term
from litz_lowering.context import Axes, LoweringContext, Tensor
from litz_lowering.registry import REGISTRY, rule
from litz_lowering.rules import formula as f
from litz_lowering.rules.formula import Num, Number, where
from litz_lowering.rules.promotion import operand, promoted, rounded

Computed = Literal["result", "operands", "bool"]
Body = Callable[..., Num]


@dataclass(frozen=True, slots=True)
class PointwiseRow:
    """``body`` gets tensors as :class:`Num` at one index and Python numbers as they are, in the operator's order.

    ``computed`` says in which dtype: ``result`` (the result's, narrow floats in ``f32``), ``operands`` (what eager
    promotes the operands to: comparisons and tests) or ``bool`` (each operand's truth). ``rounds_numbers``: eager on a
    CPU rounds number operands to a narrow result's dtype before it computes (it does so for sums, not for products).
    ``fast`` is a quicker body for ``numerics="fast"``.
    """

    body: Body
    computed: Computed = "result"
    rounds_numbers: bool = False
    fast: Body | None = None


ROWS: dict[str, PointwiseRow] = {}
"""The table by overload name, without ``aten.``; filled while the rule modules are imported."""


def row(
    body: Body,
    *overloads: str,
    computed: Computed = "result",
    rounds_numbers: bool = False,
    fast: Body | None = None,
) -> None:
    """Serve ``overloads`` (without ``aten.``) by a formula."""
    entry = PointwiseRow(body, computed, rounds_numbers, fast)

    def lower_row(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor:
        return lower_pointwise(ctx, entry, args, kwargs)

    REGISTRY.add(lower_row, *(f"aten.{name}" for name in overloads))
    ROWS.update((name, entry) for name in overloads)


def lower_pointwise(
    ctx: LoweringContext,
    entry: PointwiseRow,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    position: int | None = None,
) -> Tensor:
    """Apply a row; ``position`` picks one of several results."""
    kind = ctx.output if position is None else ctx.outputs[position]
    if kind is None:
        raise ctx.error("a pointwise operator has to return a tensor")
    common = computed_dtype(entry, args, kind.dtype)
    exact = not (entry.rounds_numbers and kind.device.kind == "cpu")
    held = [_hold(argument, common, entry.computed, exact) for argument in args]
    named = {key: _hold(value, common, entry.computed, True) for key, value in kwargs.items()}

    body_of = entry.fast if entry.fast is not None and ctx.options.numerics == "fast" else entry.body

    def body(axes: Axes) -> Expr:
        return body_of(*(h(axes) for h in held), **{key: h(axes) for key, h in named.items()}).expr

    return ctx.pointwise(body, kind, "" if position is None else str(position))


def computed_dtype(entry: PointwiseRow, args: tuple[Any, ...], result: DType) -> DType:
    """The dtype a row is computed in, before narrow floats widen."""
    if entry.computed == "result":
        return result
    return b1 if entry.computed == "bool" else promoted(args)


def _hold(argument: Any, common: DType, computed: Computed, exact: bool) -> Callable[[Axes], Any]:
    if isinstance(argument, Tensor | Expr | Term):
        return operand(argument, common, exact=exact)
    if isinstance(argument, int | float) and computed == "operands":
        literal = Num(build.const(rounded(argument, common), compute_dtype(common)))
        return lambda axes: literal
    if isinstance(argument, int | float) and computed == "bool":
        truth = Num(build.const(bool(argument), b1))
        return lambda axes: truth
    if isinstance(argument, int | float) and not exact:
        return operand(argument, common, exact=False)
    return lambda axes: argument


# --- unary ----------------------------------------

for _name in (
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sigmoid sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc erfinv lgamma digamma reciprocal"
).split():
    row(f.unary(_name), f"{_name}.default")


def _on_floats(name: str) -> Body:
    """An operation that changes floats only."""
    return lambda x: f.unary(name)(x) if x.dtype.is_float else x


for _name in ("floor", "ceil", "trunc", "round"):
    row(_on_floats(_name), f"{_name}.default")


def _unless_bool(name: str) -> Body:
    return lambda x: x if x.dtype.is_bool else f.unary(name)(x)


row(_unless_bool("abs"), "abs.default")
row(_unless_bool("sign"), "sign.default", "sgn.default")
row(lambda x: -x, "neg.default")
row(lambda x: x, "positive.default")
row(lambda x: x * x, "square.default")
row(lambda x: x - f.trunc(x), "frac.default")
row(lambda x: ~x, "bitwise_not.default")
row(lambda x: ~x, "logical_not.default", computed="bool")


def _test(name: str) -> Body:
    return lambda x: f.unary(name)(x) if x.dtype.is_float else f.false(x)


row(_test("isnan"), "isnan.default", computed="operands")
row(_test("isinf"), "isinf.default", computed="operands")
row(
    lambda x: f.false(x) if x.dtype.kind in ("bool", "uint") else f.unary("signbit")(x),
    "signbit.default", computed="operands",
)  # fmt: skip
row(
    lambda x: ~(f.isnan(x) | f.isinf(x)) if x.dtype.is_float else ~f.false(x),
    "isfinite.default",
    computed="operands",
)
row(lambda x: x.eq(math.inf) if x.dtype.is_float else f.false(x), "isposinf.default", computed="operands")
row(lambda x: x.eq(-math.inf) if x.dtype.is_float else f.false(x), "isneginf.default", computed="operands")


def _round_decimals(x: Num, *, decimals: int) -> Num:
    if not x.dtype.is_float or decimals == 0:
        return _on_floats("round")(x)
    scale = 10.0 ** abs(decimals)
    return f.rint(x * scale) / scale if decimals > 0 else f.rint(x / scale) * scale


row(_round_decimals, "round.decimals")
row(lambda x: where(f.isnan(x), x, where(x < 0, math.pi, x * 0)), "angle.default")


def _nan_to_num(
    x: Num, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Num:
    if not x.dtype.is_float:
        return x
    low, high = _float_limits(x.dtype)
    finite = where(x.eq(math.inf), high if posinf is None else posinf, x)
    finite = where(x.eq(-math.inf), low if neginf is None else neginf, finite)
    return where(f.isnan(x), 0.0 if nan is None else nan, finite)


def _float_limits(dtype: DType) -> tuple[float, float]:
    high = (2.0 - 2.0**-52) * 2.0**1023 if dtype.bits == 64 else (2.0 - 2.0**-23) * 2.0**127
    return -high, high


# --- binary arithmetic ----------------------------------------


def _add(x: Num, y: Num | Number, alpha: Number = 1) -> Num:
    if x.dtype.is_bool:
        return x | y
    return x + _scaled(x, y, alpha)


def _scaled(x: Num, y: Num | Number, alpha: Number) -> Num | Number:
    if alpha == 1:
        return y
    return x.like(y) * alpha


row(_add, "add.Tensor", "add.Scalar", rounds_numbers=True)
row(lambda x, y, alpha=1: x - _scaled(x, y, alpha), "sub.Tensor", "sub.Scalar", rounds_numbers=True)
row(lambda x, y, alpha=1: x.like(y) - _scaled(x, x, alpha), "rsub.Tensor", "rsub.Scalar", rounds_numbers=True)
row(lambda x, y: x & y if x.dtype.is_bool else x * y, "mul.Tensor", "mul.Scalar")
row(f.minimum, "minimum.default")
row(f.maximum, "maximum.default")
row(lambda x, y: f.binary("fmin" if x.dtype.is_float else "minimum")(x, y), "fmin.default")
row(lambda x, y: f.binary("fmax" if x.dtype.is_float else "maximum")(x, y), "fmax.default")
row(f.fmod, "fmod.Tensor", "fmod.Scalar", rounds_numbers=True)
row(f.remainder, "remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor", rounds_numbers=True)
row(f.floor_div, "floor_divide.default", "floor_divide.Scalar", rounds_numbers=True)
row(f.binary("atan2"), "atan2.default")
row(f.binary("hypot"), "hypot.default")
row(lambda x, y: x * f.exp2(x.like(y)), "ldexp.Tensor")
row(f.binary("copysign"), "copysign.Tensor", "copysign.Scalar")
row(f.binary("nextafter"), "nextafter.default")


def _divide(x: Num, y: Num | Number, rounding_mode: str | None = None) -> Num:
    if rounding_mode == "floor":
        return f.floor_div(x, y)
    if rounding_mode == "trunc":
        return f.trunc(x / y) if x.dtype.is_float else f.binary("trunc_div")(x, y)
    return x / y


def _divide_fast(x: Num, y: Num | Number, rounding_mode: str | None = None) -> Num:
    if rounding_mode is None and not isinstance(y, Num) and y != 0 and math.isfinite(1.0 / y):
        return x * (1.0 / y)
    return _divide(x, y, rounding_mode)


row(
    _divide, "div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "true_divide.Tensor", fast=_divide_fast
)  # fmt: skip


def _power(x: Num | Number, y: Num | Number) -> Num:
    """The exponents that eager computes without ``pow``, then ``pow``."""
    if not isinstance(x, Num) or isinstance(y, Num):
        return f.power(x, y)
    if y == 0:
        return x.like(1)
    if y == 1:
        return x
    if y in (2, 3):
        return x * x if y == 2 else x * x * x
    if not x.dtype.is_float:
        return f.power(x, y)
    special: dict[float, Body] = {
        0.5: f.sqrt, -0.5: f.rsqrt, -1.0: f.reciprocal, -2.0: lambda v: 1.0 / (v * v),
    }  # fmt: skip
    return special[float(y)](x) if float(y) in special else f.power(x, y)


row(_power, "pow.Tensor_Scalar", "pow.Scalar", "pow.Tensor_Tensor")


def _logaddexp(x: Num, y: Num) -> Num:
    same = f.isinf(x) & x.eq(y)
    return where(same, x, f.maximum(x, y) + f.log1p(f.exp(-f.absolute(x - y))))


def _xlogy(x: Num | Number, y: Num | Number) -> Num:
    held = x if isinstance(x, Num) else y
    assert isinstance(held, Num), "one side of xlogy is a tensor"
    left, right = held.like(x), held.like(y)
    return where(f.isnan(right), math.nan, where(left.eq(0), 0, left * f.log(right)))


def _heaviside(x: Num, values: Num) -> Num:
    return where(x.eq(0), values, (x > 0).to(x.dtype))


row(_logaddexp, "logaddexp.default")
row(_xlogy, "xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other")
row(_heaviside, "heaviside.default")

# --- bits ----------------------------------------

for _name, _op in (("and", "bit_and"), ("or", "bit_or"), ("xor", "bit_xor")):
    row(f.binary(_op), f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar", f"bitwise_{_name}.Scalar_Tensor")
    row(f.binary(_op), f"logical_{_name}.default", computed="bool")
for _name, _op in (("left", "shift_left"), ("right", "shift_right")):
    row(f.binary(_op), f"bitwise_{_name}_shift.Tensor", f"bitwise_{_name}_shift.Tensor_Scalar",
        f"bitwise_{_name}_shift.Scalar_Tensor")  # fmt: skip
for _name, _op in (("l", "shift_left"), ("r", "shift_right")):
    row(f.binary(_op), f"__{_name}shift__.Tensor", f"__{_name}shift__.Scalar")

# --- choices and several operands ----------------------------------------


def _clamp(x: Num, min: Num | Number | None = None, max: Num | Number | None = None) -> Num:
    if min is not None:
        x = f.maximum(x, min)
    return x if max is None else f.minimum(x, max)


row(_clamp, "clamp.default", "clamp.Tensor")
row(f.maximum, "clamp_min.default", "clamp_min.Tensor")
row(f.minimum, "clamp_max.default", "clamp_max.Tensor")
row(lambda x, y, z, value=1: x + (y if value == 1 else y * value) * z, "addcmul.default")
row(lambda x, y, z, value=1: x + (y if value == 1 else y * value) / z, "addcdiv.default")


def _lerp(start: Num, end: Num, weight: Num | Number) -> Num:
    span = end - start
    if isinstance(weight, Num):
        near = f.absolute(weight) < 0.5
        return where(near, start + weight * span, end - span * (1.0 - weight))
    return start + span * weight if abs(weight) < 0.5 else end - span * (1.0 - weight)


row(_lerp, "lerp.Scalar", "lerp.Tensor")


@rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def choose(ctx: LoweringContext, condition: Tensor, a: Any, b: Any) -> Tensor:
    """``a`` where the condition holds, else ``b``; nothing is computed, so nothing widens."""
    return _choice(ctx, condition, a, b)


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(ctx: LoweringContext, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """``value`` where the mask holds, else ``x``."""
    return _choice(ctx, mask, value, x)


def _choice(ctx: LoweringContext, condition: Tensor, a: Any, b: Any) -> Tensor:
    dtype = ctx.output.dtype

    def held(argument: Any, axes: Axes) -> Expr:
        if isinstance(argument, Tensor):
            return build.cast(argument.at(axes), dtype)
        value = operand(argument, dtype)(axes)
        return (
            build.cast(value.expr, dtype)
            if isinstance(value, Num)
            else build.const(rounded(value, dtype), dtype)
        )

    return ctx.pointwise(
        lambda axes: build.where(build.cast(condition.at(axes), b1), held(a, axes), held(b, axes))
    )


row(_nan_to_num, "nan_to_num.default")
