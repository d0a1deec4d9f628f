"""Binary arithmetic, bitwise and logical operators: rows of the pointwise table."""

from __future__ import annotations

import math

import torch

from litz_ir.dtypes import DType, i32
from litz_ir.errors import UnsupportedOperation
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, Number, where
from litz_lowering.rules.elementwise.pointwise import Formula, row
from litz_lowering.types.torch_types import torch_dtype


def _add(x: Num, y: Num | Number, alpha: Number = 1) -> Num:
    return x | y if x.dtype.is_bool else _plus_scaled(x, y, alpha)


def _plus_scaled(x: Num, y: Num | Number, alpha: Number) -> Num:
    """``x + alpha * y``, for floats rounded once, as in eager's vectorised loops."""
    if alpha in (1, -1):
        return x + y if alpha == 1 else x - y
    if not x.dtype.is_float or not isinstance(y, Num):
        return x + x.like(y) * alpha
    return f.fma(y, alpha, x)


row(_add, "add.Tensor", "add.Scalar", rounds_numbers="cpu")
row(lambda x, y, alpha=1: _plus_scaled(x, y, -alpha), "sub.Tensor", "sub.Scalar", rounds_numbers="cpu")
row(
    lambda x, y, alpha=1: _plus_scaled(x.like(y), x, -alpha),
    "rsub.Tensor",
    "rsub.Scalar",
    rounds_numbers="cpu",
)
row(lambda x, y: x & y if x.dtype.is_bool else x * y, "mul.Tensor", "mul.Scalar", exact_scalars=True)
row(f.minimum, "minimum.default")
row(f.maximum, "maximum.default")
row(lambda x, y: f.binary("fmin" if x.dtype.is_float else "minimum")(x, y), "fmin.default")
row(lambda x, y: f.binary("fmax" if x.dtype.is_float else "maximum")(x, y), "fmax.default")
row(f.fmod, "fmod.Tensor", "fmod.Scalar", rounds_numbers="everywhere", divides=True)
row(
    f.remainder, "remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor",
    rounds_numbers="everywhere", divides=True,
)  # fmt: skip
row(f.binary("atan2"), "atan2.default")
row(f.binary("hypot"), "hypot.default")


def _common_multiple(x: Num, y: Num) -> Num:
    divisor = f.binary("gcd")(x, y)
    # C promotes small integers to int.
    wide = i32 if x.dtype.bits < 32 else x.dtype
    product = f.absolute(f.binary("trunc_div")(x, divisor).to(wide) * y.to(wide))
    return where(divisor.eq(0), 0, product.to(x.dtype))


row(f.binary("gcd"), "gcd.default")
row(_common_multiple, "lcm.default")
row(f.binary("copysign"), "copysign.Tensor", "copysign.Scalar")


def _floor_quotient(x: Num, y: Num | Number, *, result: DType, by_scalar: bool) -> Num:
    """``x // y``, with each intermediate value of two 16-bit tensors rounded, as in eager."""
    if by_scalar or result == x.dtype:
        return f.floor_div(x, y)
    divisor = x.like(y)

    def narrow(value: Num) -> Num:
        return value.to(result).to(x.dtype)

    ratio, rest = narrow(x / divisor), f.fmod(x, divisor)
    overflows = f.isinf(ratio) & ~f.isinf(x)
    quotient = narrow(where(overflows, x, narrow(x - rest)) / divisor)
    return _floor_of_quotient(quotient, rest, divisor, ratio, narrow)


def _floor_of_quotient(quotient: Num, rest: Num, y: Num, ratio: Num, narrow: Formula) -> Num:
    """Floor of ``quotient``, which is ``(x - rest) / y``; ``ratio`` is ``x / y`` and ``rest`` C's remainder."""
    quotient = where(rest.ne(0) & ((y < 0) ^ (rest < 0)), narrow(quotient - 1), quotient)
    whole = f.floor(quotient)
    whole = where(narrow(quotient - whole) > 0.5, narrow(whole + 1), whole)
    whole = where(quotient.eq(0), f.binary("copysign")(ratio.like(0), ratio), whole)
    return where(y.eq(0), ratio, whole)


def _floor_quotient_on_gpus(x: Num, y: Num | Number, *, result: DType, by_scalar: bool) -> Num:
    """``x // y``, of which eager rounds only the result; a number ``y`` multiplies by its reciprocal."""
    if not by_scalar or not x.dtype.is_float:
        return f.floor_div(x, y)
    divisor, inverse = x.like(y), _inverse(y, x.dtype)
    rest = f.fmod(x, divisor)
    return _floor_of_quotient((x - rest) * inverse, rest, divisor, x * inverse, lambda value: value)


def _divide(
    x: Num, y: Num | Number, rounding_mode: str | None = None, *, result: DType, by_scalar: bool
) -> Num:
    if rounding_mode == "floor":
        return _floor_quotient(x, y, result=result, by_scalar=by_scalar)
    if rounding_mode is None:
        return x / y
    if not x.dtype.is_float:
        return f.binary("trunc_div")(x, y)
    return f.trunc(x / y if by_scalar else (x / y).to(result).to(x.dtype))


def _divide_on_gpus(
    x: Num, y: Num | Number, rounding_mode: str | None = None, *, result: DType, by_scalar: bool
) -> Num:
    """``x / y``; a number ``y`` multiplies by its reciprocal, which is rounded to the computation's dtype."""
    if rounding_mode == "floor":
        return _floor_quotient_on_gpus(x, y, result=result, by_scalar=by_scalar)
    if not by_scalar or not x.dtype.is_float:
        return _divide(x, y, rounding_mode, result=result, by_scalar=by_scalar)
    quotient = x * _inverse(y, x.dtype)
    return quotient if rounding_mode is None else f.trunc(quotient)


def _inverse(y: Num | Number, dtype: DType) -> Num | Number:
    """Reciprocal in the computation's dtype."""
    if isinstance(y, Num):
        return f.reciprocal(y)
    return torch.tensor(float(y), dtype=torch_dtype(dtype)).reciprocal().item()


def _divide_fast(
    x: Num, y: Num | Number, rounding_mode: str | None = None, *, result: DType, by_scalar: bool
) -> Num:
    if rounding_mode is None and not isinstance(y, Num) and y != 0 and math.isfinite(1.0 / y):
        return x * (1.0 / y)
    return _divide(x, y, rounding_mode, result=result, by_scalar=by_scalar)


row(
    _floor_quotient, "floor_divide.default", "floor_divide.Scalar",
    on_gpus=_floor_quotient_on_gpus, exact_scalars=True, typed=True, by_scalar=True, divides=True,
)  # fmt: skip
row(
    _divide, "div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "true_divide.Tensor",
    fast=_divide_fast, on_gpus=_divide_on_gpus, exact_scalars=True, typed=True, by_scalar=True, divides=True,
)  # fmt: skip


def _power(x: Num, y: Num | Number) -> Num:
    """``x ** y``, with eager's special cases for some exponents."""
    if isinstance(y, Num):
        return f.power(x, y)
    if y == 0:
        return x.like(1)
    if y == 1:
        return x
    if y in (2, 3):
        return x * x if y == 2 else x * x * x
    if not x.dtype.is_float:
        if y < 0:
            raise UnsupportedOperation("integers to negative integer powers are not allowed")
        return f.power(x, y)
    special: dict[float, Formula] = {
        0.5: f.sqrt, -0.5: f.rsqrt, -1.0: f.reciprocal, -2.0: lambda v: 1.0 / (v * v),
    }  # fmt: skip
    return special[float(y)](x) if float(y) in special else f.power(x, y)


row(_power, "pow.Tensor_Scalar", "pow.Scalar", "pow.Tensor_Tensor", rounds_numbers="cpu")


def _logaddexp(x: Num, y: Num) -> Num:
    same = f.isinf(x) & x.eq(y)
    return where(same, x, f.maximum(x, y) + f.log1p(f.exp(-f.absolute(x - y))))


def _xlogy(x: Num, y: Num | Number) -> Num:
    other = x.like(y)
    return where(f.isnan(other), math.nan, where(x.eq(0), 0, x * f.log(other)))


def _heaviside(x: Num, values: Num) -> Num:
    return where(x.eq(0), values, (x > 0).to(x.dtype))


row(_logaddexp, "logaddexp.default")
row(_xlogy, "xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other", rounds_numbers="cpu")
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
