"""Pointwise operators: a table of formulas, each with a rule for the dtype of its computation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from litz_ir.device import Device
from litz_ir.dtypes import DType, b1, compute_dtype, f64, i32, i64
from litz_ir.scalar import Const, Expr, build
from litz_ir.symbols import Term
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import REGISTRY, rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, Number, where
from litz_lowering.expressions.promotion import operand, promoted, rounded
from litz_lowering.types.torch_types import litz_dtype

Computed = Literal["result", "operands", "bool"]
Rounding = Literal["nowhere", "cpu", "everywhere"]
Formula = Callable[..., Num]


@dataclass(frozen=True, slots=True)
class PointwiseRow:
    """Formula of a pointwise operator."""

    body: Formula
    """Formula over the operator's arguments: tensors are :class:`Num` at one index, Python numbers are passed as
    they are. The first operand is always a :class:`Num`."""
    computed: Computed = "result"
    """Dtype of the computation: ``result`` (the result's, with 16-bit floats in ``f32``), ``operands`` (to which
    eager promotes the operands, for comparisons and tests) or ``bool`` (the truth of each operand)."""
    rounds_numbers: Rounding = "nowhere"
    """Devices where number operands are rounded to a 16-bit float result's dtype first: eager does so on a CPU for sums
    but not for products, and everywhere for remainders. A first operand is always rounded on a CPU."""
    exact_scalars: bool = False
    """Leave a second operand that is a 0-d tensor unrounded beside a 16-bit float result, as eager does on a CPU."""
    fast: Formula | None = None
    """Faster formula for ``numerics="fast"``."""
    on_gpus: Formula | None = None
    """Formula of eager's kernels on GPUs, where it rounds differently."""
    typed: bool = False
    """Pass the result's dtype to the formula as ``result``."""
    by_scalar: bool = False
    """Pass to the formula as ``by_scalar`` whether eager's kernel reads the second operand as a number. A first
    operand that is a number is rounded on GPUs too."""
    divides: bool = False
    """Raise an error for zero divisors among integers on a CPU."""


ROWS: dict[str, PointwiseRow] = {}
"""Table by overload name without namespace, filled while the rule modules are imported."""


def row(
    body: Formula,
    *overloads: str,
    computed: Computed = "result",
    rounds_numbers: Rounding = "nowhere",
    fast: Formula | None = None,
    on_gpus: Formula | None = None,
    exact_scalars: bool = False,
    typed: bool = False,
    by_scalar: bool = False,
    divides: bool = False,
    namespace: str = "aten",
) -> None:
    """Register a formula for ``overloads`` of ``namespace``, given without the namespace."""
    entry = PointwiseRow(
        body, computed, rounds_numbers, exact_scalars, fast, on_gpus, typed, by_scalar, divides
    )

    def lower_row(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor:
        return lower_pointwise(ctx, entry, args, kwargs)

    REGISTRY.add(lower_row, *(f"{namespace}.{name}" for name in overloads))
    ROWS.update((name, entry) for name in overloads)


def lower_pointwise(
    ctx: LoweringContext,
    entry: PointwiseRow,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    position: int | None = None,
) -> Tensor:
    """Apply a row; ``position`` selects one of several results."""
    kind = ctx.output if position is None else ctx.outputs[position]
    if kind is None:
        raise ctx.error("a pointwise operator has to return a tensor")
    common = _computed_dtype(entry, args, kind.dtype)
    operands = [
        _operand_reader(argument, common, entry.computed, _is_exact(entry, k, argument, kind.device))
        for k, argument in enumerate(args)
    ]
    if isinstance(args[0], int | float):
        is_rounded = kind.device.kind == "cpu" or entry.by_scalar or entry.rounds_numbers == "everywhere"
        operands[0] = _literal(rounded(args[0], common) if is_rounded else args[0], common)
    if entry.divides and kind.dtype.is_integer and kind.device.kind == "cpu":
        operands[1] = _divisor(operands[1], common)
    named = {key: _operand_reader(value, common, entry.computed, True) for key, value in kwargs.items()}

    chosen = entry.body
    if ctx.options.numerics == "fast":
        chosen = entry.fast or chosen
    elif kind.device.kind != "cpu":
        chosen = entry.on_gpus or chosen
    body_of = partial(chosen, result=kind.dtype) if entry.typed else chosen
    if entry.by_scalar:
        body_of = partial(body_of, by_scalar=_is_scalar(args[1], kind.device))

    def body(axes: Axes) -> Expr:
        return body_of(*(h(axes) for h in operands), **{key: h(axes) for key, h in named.items()}).expr

    return ctx.pointwise(body, kind, "" if position is None else str(position))


def _computed_dtype(entry: PointwiseRow, args: tuple[Any, ...], result: DType) -> DType:
    """Dtype of a row's computation, before 16-bit floats widen to f32."""
    if entry.computed == "result":
        return result
    return b1 if entry.computed == "bool" else promoted(args)


def _is_exact(entry: PointwiseRow, position: int, argument: Any, device: Device) -> bool:
    """Report whether eager reads an operand beside a 16-bit float result without rounding it to that dtype."""
    if entry.computed == "operands":
        return False
    on_cpu = device.kind == "cpu"
    if isinstance(argument, Tensor) and argument.device == device:
        return on_cpu and entry.exact_scalars and position == 1
    if not on_cpu:
        return entry.rounds_numbers != "everywhere"
    return position > 0 and entry.rounds_numbers == "nowhere"


def _is_scalar(argument: Any, device: Device) -> bool:
    """Report whether eager's kernel reads an operand as a number: on a CPU also a tensor of one element."""
    if not isinstance(argument, Tensor):
        return True
    return argument.device.kind == "cpu" and (
        device.kind != "cpu" or all(size == 1 for size in argument.shape)
    )


def _operand_reader(argument: Any, common: DType, computed: Computed, exact: bool) -> Callable[[Axes], Any]:
    if isinstance(argument, Tensor | Expr | Term):
        return operand(argument, common, exact=exact)
    if isinstance(argument, int | float) and computed == "operands":
        return _literal(rounded(argument, common), common)
    if isinstance(argument, int | float) and computed == "bool":
        truth = Num(build.const(bool(argument), b1))
        return lambda axes: truth
    if isinstance(argument, int | float) and not exact:
        return operand(argument, common, exact=False)
    return lambda axes: argument


def _divisor(read: Callable[[Axes], Any], common: DType) -> Callable[[Axes], Num]:
    def divisor(axes: Axes) -> Num:
        given = read(axes)
        expr = given.expr if isinstance(given, Num) else build.const(given, common)
        if isinstance(expr, Const):
            allowed: Expr = build.const(expr.value != 0, b1)
        else:
            allowed = build.op("ne", expr, build.const(0, expr.dtype))
        return Num(build.checked(allowed, expr, "zero_division"))

    return divisor


def _literal(value: Number, common: DType) -> Callable[[Axes], Num]:
    literal = Num(build.const(value, compute_dtype(common)))
    return lambda axes: literal


# --- unary ----------------------------------------

for _name in (
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sigmoid sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc erfinv lgamma digamma reciprocal"
).split():
    row(f.unary(_name), f"{_name}.default")


def _on_floats(name: str) -> Formula:
    """Operation that changes floats only."""
    return lambda x: f.unary(name)(x) if x.dtype.is_float else x


for _name in ("floor", "ceil", "trunc", "round"):
    row(_on_floats(_name), f"{_name}.default")


def _unless_bool(name: str) -> Formula:
    return lambda x: x if x.dtype.is_bool else f.unary(name)(x)


row(_unless_bool("abs"), "abs.default")
row(_unless_bool("sign"), "sign.default", "sgn.default")
row(lambda x: -x, "neg.default", "_neg_view.default")
row(lambda x: x, "resolve_neg.default", "resolve_conj.default")
row(lambda x: x, "positive.default")
row(lambda x: x * x, "square.default")
row(lambda x: x - f.trunc(x), "frac.default")
row(lambda x: ~x, "bitwise_not.default")
row(lambda x: ~x, "logical_not.default", computed="bool")


def _test(name: str) -> Formula:
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
row(lambda x: where(f.isnan(x), x, where(x < 0, math.pi, x.like(0))), "angle.default")


def nan_to_num(
    x: Num,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    result: DType,
) -> Num:
    """Replace NaN by zero and infinities by the largest numbers of ``result``, or by the given numbers."""
    if not result.is_float:
        return x
    largest = result.largest
    finite = where(x.eq(math.inf), largest if posinf is None else posinf, x)
    finite = where(x.eq(-math.inf), -largest if neginf is None else neginf, finite)
    return where(f.isnan(x), 0.0 if nan is None else nan, finite)


row(nan_to_num, "nan_to_num.default", typed=True)


# --- selection and ternary operators ----------------------------------------


row(f.clip, "clamp.default", "clamp.Tensor", rounds_numbers="cpu")
row(lambda x, min: f.clip(x, min), "clamp_min.default", "clamp_min.Tensor", rounds_numbers="cpu")
row(lambda x, max: f.clip(x, None, max), "clamp_max.default", "clamp_max.Tensor", rounds_numbers="cpu")


def _multiply_add(x: Num, y: Num | Number, z: Num) -> Num:
    return f.fma(x, y, z) if x.dtype.is_float else x * y + z


def _add_product(x: Num, y: Num, z: Num, value: Number = 1) -> Num:
    return _multiply_add(y if value == 1 else y * value, z, x)


row(_add_product, "addcmul.default")
# Dynamo emits this operator for addcmul_, addcdiv_ and add_ with a value.
row(_multiply_add, "fma.default", namespace="prims")
row(lambda x, y, z, value=1: x + (y if value == 1 else y * value) / z, "addcdiv.default")


def _lerp(start: Num, end: Num, weight: Num | Number) -> Num:
    span = end - start
    if isinstance(weight, Num):
        is_near_start = f.absolute(weight) < 0.5
        return f.fma(where(is_near_start, weight, weight - 1), span, where(is_near_start, start, end))
    return f.fma(span, weight, start) if abs(weight) < 0.5 else f.fma(span, weight - 1, end)


row(_lerp, "lerp.Scalar", "lerp.Tensor")


@rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def choose(ctx: LoweringContext, condition: Tensor, a: Any, b: Any) -> Tensor:
    """``a`` where the condition is true, else ``b``, without a computation in a wider dtype."""
    return _choice(ctx, condition, a, b)


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(ctx: LoweringContext, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """``value`` where the mask is true, else ``x``."""
    return _choice(ctx, mask, value, x)


def _choice(ctx: LoweringContext, condition: Tensor, a: Any, b: Any) -> Tensor:
    dtype = ctx.output.dtype

    def read(argument: Any, axes: Axes) -> Expr:
        if isinstance(argument, Tensor):
            return build.cast(argument.at(axes), dtype)
        value = operand(argument, dtype)(axes)
        return (
            build.cast(value.expr, dtype)
            if isinstance(value, Num)
            else build.const(rounded(value, dtype), dtype)
        )

    return ctx.pointwise(
        lambda axes: build.where(build.cast(condition.at(axes), b1), read(a, axes), read(b, axes))
    )


@rule("aten.nextafter.default")
def neighbour(ctx: LoweringContext, x: Tensor, towards: Tensor) -> Tensor:
    """Next representable number in the result's own dtype; 16-bit floats do not widen."""
    dtype = ctx.output.dtype

    def body(axes: Axes) -> Expr:
        return build.op("nextafter", build.cast(x.at(axes), dtype), build.cast(towards.at(axes), dtype))

    return ctx.pointwise(body)


@rule("aten.ldexp.Tensor")
def scale_by_power(ctx: LoweringContext, x: Tensor, exponent: Tensor) -> Tensor:
    """``x * 2 ** exponent``; the power is rounded to the exponent's dtype, in which it may overflow."""
    own = exponent.dtype if exponent.dtype.is_float else litz_dtype(torch.get_default_dtype())
    wide = compute_dtype(ctx.output.dtype)

    def body(axes: Axes) -> Expr:
        power = f.exp2(Num(build.cast(build.cast(exponent.at(axes), own), compute_dtype(own)))).to(own)
        return (Num(build.cast(x.at(axes), wide)) * power.to(wide)).expr

    return ctx.pointwise(body)


@rule("aten.frexp.Tensor")
def mantissa_and_exponent(ctx: LoweringContext, x: Tensor) -> tuple[Tensor, ...]:
    """``x = mantissa * 2 ** exponent`` with the mantissa in [0.5, 1); zeros, infinities and NaN have exponent 0."""
    wide = compute_dtype(x.dtype)
    bits, digits, bias = i64 if wide == f64 else i32, wide.mantissa, wide.bias
    lowest, lift = 2.0 ** (1 - bias), digits + 1

    def result(position: int, axes: Axes) -> Expr:
        value = Num(build.cast(x.at(axes), wide))
        small = f.absolute(value) < lowest
        code = Num(build.op("bitcast", where(small, value * 2.0**lift, value).expr, dtype=bits))
        exponent = (f.binary("shift_right")(code, digits) & (2 * bias + 1)) - (bias - 1)
        own = (code & ~((2 * bias + 1) << digits)) | (bias - 1) << digits
        mantissa = Num(build.op("bitcast", own.expr, dtype=wide))
        unchanged = value.eq(0) | f.isinf(value) | f.isnan(value)
        exponent = exponent - where(small, exponent.like(lift), 0)
        return (where(unchanged, value, mantissa), where(unchanged, 0, exponent))[position].expr

    return tuple(ctx.pointwise(partial(result, k), ctx.outputs[k], str(k)) for k in range(2))
