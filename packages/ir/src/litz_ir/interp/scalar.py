"""The meaning of each row of the scalar operation table.

The rules are PyTorch's on a CPU. Arrays have the forms of ``litz_ir.interp.encoding``. An operation on floats
of less than 32 bits computes in ``f32`` and rounds its result; a body that needs no rounding casts to ``f32``
first. Transcendental functions of ``f32`` are computed in ``f64`` and rounded: the meaning is the nearest
value, and each code generator documents its own error. The rules beyond IEEE and two's complement:

- *cast of a float to an integer* truncates. NaN and overflow give the results of x86's ``cvtt`` instructions:
  the smallest ``i32`` for ``i32``, whose low bits are the result for ``i16`` and ``i8``; the smallest ``i64`` for
  ``i64``, whose low bits are the result for ``u8``, ``u16`` and ``u32``; for ``u64``, 2**63 below the range of ``i64``
  and for NaN, 0 above the range of ``u64``, and other negative values wrap.
- *division of integers by zero* gives 0, and so do its remainders; programs may not rely on it. The smallest integer
  divided by -1 wraps. ``pow`` of integers wraps; a negative exponent gives 0, except for the bases 1 and -1.
- *remainder* of floats is C's ``fmod``, plus the divisor where the signs differ; ``x % 0`` is NaN.
- *gcd* is Euclid's over the absolute values; the smallest integer has no absolute value and may give a negative result.
- *zeta* is Hurwitz's: infinite where the first argument is 1 or the second a pole, NaN where the first is below 1.
- *gamma_series* of ``a`` and ``x`` is the sum of ``x ** k / ((a + 1) ... (a + k))`` over ``k >= 0``, and
  *gamma_fraction* is ``1 / (x + 1 - a + 1 (a - 1) / (x + 3 - a + 2 (a - 2) / (x + 5 - a + ...)))``: the incomplete
  gamma functions without their power factors. Both end when they no longer change in ``f64``, or after 2000 terms.
- *three_term* of ``n, first, a, b, c, d, e`` is the term ``n``, truncated, of the sequence that begins with 1 and
  ``first`` and continues as ``q[k + 1] = ((a k + b) q[k] - (c + d k) q[k - 1]) / (e k + 1)``. Terms before the first,
  of NaN, and beyond the range of ``i64`` are 0. The coefficient of ``q[k]`` and the difference are computed by fma.
- *sign* of NaN is 0. *round* goes half to even. ``minimum`` and ``maximum`` give NaN if either operand is NaN.
- *shifts* by a negative amount count as shifts past the width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from litz_ir.dtypes import DType, i32, i64
from litz_ir.errors import GraphError, LitzError
from litz_ir.interp import philox, special
from litz_ir.interp.encoding import Array, compute_type, decode, encode, round_to, storage_dtype


@dataclass(frozen=True, slots=True)
class OperandDTypes:
    """Dtypes of an operation."""

    source: DType
    """Dtype of the last argument."""
    result: DType
    """Dtype of the result."""


Meaning = Callable[[Sequence[Array], OperandDTypes], Array]
"""A function that computes an operation."""


def apply(name: str, args: Sequence[Array], source: DType, result: DType) -> Array:
    """The value of operation ``name`` over ``args``, which broadcast against each other.

    ``source`` is the dtype of the last argument (of all but the condition of ``where``), ``result`` that of the
    result.
    """
    with np.errstate(all="ignore"):
        value = np.asarray(MEANINGS[name](args, OperandDTypes(source, result)))
        return round_to(value, result) if result.is_float else value.astype(compute_type(result), copy=False)


def _plain(function: Callable[..., Any]) -> Meaning:
    """An operation computed in its dtype (``f32`` for narrower floats), with a result that is exact or
    rounded once.
    """
    return lambda args, types: np.asarray(function(*args))


def _precise(function: Callable[..., Any]) -> Meaning:
    """An operation computed in ``f64`` and rounded once."""
    return lambda args, types: np.asarray(function(*(np.asarray(a, np.float64) for a in args)))


# --- conversions --------------------------------------------------------------------------------------------


def _cast(args: Sequence[Array], types: OperandDTypes) -> Array:
    (x,) = args
    if types.result.is_bool:
        return np.asarray(x != 0)
    if types.source.is_float and types.result.is_integer:
        return _float_to_integer(x.astype(np.float64), types.result)
    return x.astype(compute_type(types.result))


def _float_to_integer(x: Array, result: DType) -> Array:
    through = i32 if result.kind == "int" and result.bits <= 32 else i64
    limit = 2.0 ** (through.bits - 1)
    truncated = np.trunc(x)
    fits = (truncated >= -limit) & (truncated < limit)
    low = np.where(fits, truncated, 0.0).astype(np.int64)
    value = np.where(fits, low, np.int64(-(2 ** (through.bits - 1))))
    if result.kind == "uint" and result.bits == 64:
        upper = (truncated >= limit) & (truncated < 2 * limit)
        shifted = np.where(upper, truncated - limit, 0.0).astype(np.int64)
        value = np.where(upper, shifted ^ np.int64(-(2**63)), value)
        value = np.where(truncated >= 2 * limit, np.int64(0), value)
    return value.astype(storage_dtype(result))


def _bitcast(args: Sequence[Array], types: OperandDTypes) -> Array:
    stored = encode(np.atleast_1d(args[0]), types.source)
    if types.result.is_bool:
        value = stored.view(np.uint8) != 0
    else:
        value = decode(stored.view(storage_dtype(types.result)), types.result)
    return np.asarray(value).reshape(np.shape(args[0]))


# --- arithmetic ---------------------------------------------------------------------------------------------


def _fma(args: Sequence[Array], types: OperandDTypes) -> Array:
    return special.fma(*args) if types.result.bits == 64 else special.fma_narrow(*args)


def _sign(x: Array) -> Array:
    return np.asarray((x > 0).astype(x.dtype) - (x < 0).astype(x.dtype))


def _remainder(args: Sequence[Array], types: OperandDTypes) -> Array:
    a, b = args
    if not types.source.is_float:
        return np.asarray(np.remainder(a, b))
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def _floor_div(args: Sequence[Array], types: OperandDTypes) -> Array:
    a, b = args
    if not types.source.is_float:
        return np.asarray(np.floor_divide(a, b))
    rest = np.fmod(a, b)
    quotient = (a - rest) / b
    quotient = np.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    floored = np.floor(quotient)
    floored = np.where(quotient - floored > 0.5, floored + 1, floored)
    floored = np.where(quotient == 0, np.copysign(np.zeros_like(quotient), a / b), floored)
    return np.where(b == 0, a / b, floored)


def _trunc_div(a: Array, b: Array) -> Array:
    quotient, rest = np.floor_divide(a, b), np.remainder(a, b)
    return np.asarray(quotient + ((rest != 0) & ((a < 0) != (b < 0))).astype(quotient.dtype))


def _gcd(a: Array, b: Array) -> Array:
    a, b = np.broadcast_arrays(np.abs(a), np.abs(b))
    while (a != 0).any():
        a, b = np.where(a == 0, 0, np.fmod(b, a)), np.where(a == 0, b, a)
    return b


def _pow(args: Sequence[Array], types: OperandDTypes) -> Array:
    if types.source.is_float:
        return np.asarray(np.power(args[0].astype(np.float64), args[1].astype(np.float64)))
    base, exponent = (np.array(a) for a in np.broadcast_arrays(*args))
    negative = exponent < 0
    odd = exponent % 2 != 0
    result = np.ones_like(base)
    square, rest = base, np.where(negative, 0, exponent).astype(exponent.dtype)
    for _ in range(types.source.bits):
        result = np.where(rest % 2 != 0, result * square, result)
        square, rest = square * square, rest // 2
    reciprocal = np.where(base == 1, 1, np.where(base == -1, np.where(odd, -1, 1), 0)).astype(base.dtype)
    return np.where(negative, reciprocal, result)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


# --- bits ---------------------------------------------------------------------------------------------------


def _nextafter(args: Sequence[Array], types: OperandDTypes) -> Array:
    a, b = np.broadcast_arrays(*args)
    if not types.result.is_low_precision:
        return np.asarray(np.nextafter(a, b))
    # One step along the codes, which have the order of the values once the sign is applied.
    sign = 1 << (types.result.bits - 1)
    bits = storage_dtype(types.result) if types.result.bits == 8 else np.dtype(np.uint16)
    codes = encode(a, types.result).view(bits).astype(np.int64)
    step = np.where(codes & sign, -(codes & (sign - 1)), codes) + np.where(a < b, 1, -1)
    moved = np.where(step < 0, sign - step, step).astype(bits)
    value = decode(moved.view(storage_dtype(types.result)), types.result)
    if not types.result.unsigned_zero:
        value = np.where(value == 0, np.copysign(value, a), value)
    return np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), np.where(a == b, b, value))


def _shift_left(args: Sequence[Array], types: OperandDTypes) -> Array:
    a, by = args
    inside = (by >= 0) & (by < types.source.bits)
    return np.where(inside, np.left_shift(a, np.where(inside, by, 0).astype(a.dtype)), np.zeros_like(a))


def _shift_right(args: Sequence[Array], types: OperandDTypes) -> Array:
    a, by = args
    inside = (by >= 0) & (by < types.source.bits)
    beyond = np.where(a < 0, -1, 0).astype(a.dtype)
    return np.where(inside, np.right_shift(a, np.where(inside, by, 0).astype(a.dtype)), beyond)


def _signbit(args: Sequence[Array], types: OperandDTypes) -> Array:
    return np.asarray(np.signbit(args[0]) if types.source.is_float else args[0] < 0)


def _random(function: Callable[[Array, Array, DType], Array]) -> Meaning:
    return lambda args, types: function(args[0], args[1], types.result)


_TABLE: dict[str, Meaning] = {
    "cast": _cast,
    "bitcast": _bitcast,
    "where": _plain(np.where),
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _plain(np.multiply),
    "mul_tf32": _plain(np.multiply),
    "mul_f8": _plain(np.multiply),
    "mul_f8_fast": _plain(np.multiply),
    "fma": _fma,
    "div": _plain(np.divide),
    "neg": _plain(np.negative),
    "abs": _plain(np.abs),
    "sign": _plain(_sign),
    "reciprocal": _plain(lambda x: x.dtype.type(1) / x),
    "floor_div": _floor_div,
    "remainder": _remainder,
    "trunc_div": _plain(_trunc_div),
    "fmod": _plain(np.fmod),
    "gcd": _plain(_gcd),
    "minimum": _plain(np.minimum),
    "maximum": _plain(np.maximum),
    "fmin": _plain(np.fmin),
    "fmax": _plain(np.fmax),
    "floor": _plain(np.floor),
    "ceil": _plain(np.ceil),
    "trunc": _plain(np.trunc),
    "round": _plain(np.rint),
    "sqrt": _plain(np.sqrt),
    "rsqrt": _precise(lambda x: 1 / np.sqrt(x)),
    "pow": _pow,
    "hypot": _precise(np.hypot),
    "exp": _precise(np.exp),
    "exp2": _precise(np.exp2),
    "expm1": _precise(np.expm1),
    "log": _precise(np.log),
    "log2": _precise(np.log2),
    "log10": _precise(np.log10),
    "log1p": _precise(np.log1p),
    "sigmoid": _precise(_sigmoid),
    "sin": _precise(np.sin),
    "cos": _precise(np.cos),
    "tan": _precise(np.tan),
    "asin": _precise(np.arcsin),
    "acos": _precise(np.arccos),
    "atan": _precise(np.arctan),
    "atan2": _precise(np.arctan2),
    "sinh": _precise(np.sinh),
    "cosh": _precise(np.cosh),
    "tanh": _precise(np.tanh),
    "asinh": _precise(np.arcsinh),
    "acosh": _precise(np.arccosh),
    "atanh": _precise(np.arctanh),
    "erf": _precise(special.erf),
    "erfc": _precise(special.erfc),
    "erfinv": _precise(special.erfinv),
    "lgamma": _precise(special.lgamma),
    "digamma": _precise(special.digamma),
    "zeta": _precise(special.zeta),
    "gamma_series": _precise(special.gamma_series),
    "gamma_fraction": _precise(special.gamma_fraction),
    "three_term": _plain(special.three_term),
    "copysign": _plain(np.copysign),
    "nextafter": _nextafter,
    "bit_and": _plain(np.bitwise_and),
    "bit_or": _plain(np.bitwise_or),
    "bit_xor": _plain(np.bitwise_xor),
    "bit_not": _plain(np.invert),
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "eq": _plain(np.equal),
    "ne": _plain(np.not_equal),
    "lt": _plain(np.less),
    "le": _plain(np.less_equal),
    "gt": _plain(np.greater),
    "ge": _plain(np.greater_equal),
    "isnan": _plain(np.isnan),
    "isinf": _plain(np.isinf),
    "signbit": _signbit,
    "random_uniform": _random(philox.random_uniform),
    "random_normal": _random(philox.random_normal),
    "random_bits": _random(philox.random_bits),
}

MEANINGS: Mapping[str, Meaning] = MappingProxyType(_TABLE)
"""The function of each row of the scalar operation table."""


def add_meaning(name: str, function: Callable[..., Array]) -> None:
    """Add the meaning of an operation that another package registers: a function of its operands as arrays.

    The interpreter raises :class:`~litz_ir.errors.GraphError` where the function raises, or returns no numbers of the
    operands' broadcast shape.
    """

    def meaning(args: Sequence[Array], types: OperandDTypes) -> Array:
        try:
            value = np.asarray(function(*args))
        except LitzError:
            raise
        except Exception as error:  # the function is another package's
            raise GraphError(
                f"the meaning of {name} raised {type(error).__name__}: {error}",
                hint="see the function that register_operation was given",
            ) from error
        shape = np.broadcast_shapes(*(np.shape(each) for each in args))
        kinds = "biuf" if types.result.is_float else "biu"
        if value.dtype.kind not in kinds or value.shape != shape:
            raise GraphError(
                f"the meaning of {name} returned {value.dtype} of shape {value.shape}, but an array for {types.result} "
                f"of shape {shape} belongs there",
                hint="the function that register_operation was given computes the result by element",
            )
        return value

    _TABLE[name] = meaning
