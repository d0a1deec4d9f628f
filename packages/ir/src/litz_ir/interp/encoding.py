"""NumPy representations of values: in memory, and while the interpreter computes.

In memory ``bf16`` is a ``uint16`` array and the 8-bit floats are ``uint8`` arrays of their bits; every other dtype is
the NumPy dtype of that name. During computation, floats of less than 32 bits are ``float32`` arrays whose values are
all representable in the narrower dtype; :func:`decode` and :func:`encode` convert between the two.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from litz_ir.dtypes import ALL, DType, bf16, f16, f32, f64
from litz_ir.errors import DTypeError

Array: TypeAlias = npt.NDArray[Any]

_FLOATS = (f64, f32, f16)
"""Floats that NumPy has; arrays of the others contain the unsigned integers of their bits."""


def _storage(dtype: DType) -> np.dtype[Any]:
    if dtype.is_bool:
        return np.dtype(bool)
    return np.dtype(f"{'f' if dtype in _FLOATS else 'i' if dtype.kind == 'int' else 'u'}{dtype.itemsize}")


_STORAGE = {dtype: _storage(dtype) for dtype in ALL}
_STORED = {
    stored: frozenset(d for d, each in _STORAGE.items() if each == stored) for stored in _STORAGE.values()
}
_COMPUTE = {d: np.dtype(np.float32) if d.is_low_precision else stored for d, stored in _STORAGE.items()}


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of arrays in memory."""
    return _STORAGE[dtype]


def stored_dtypes(array_dtype: np.dtype[Any]) -> frozenset[DType]:
    """The dtypes that arrays of a NumPy dtype store: several for unsigned integers, which are bits too."""
    return _STORED.get(array_dtype, frozenset())


def compute_type(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of arrays during computation."""
    return _COMPUTE[dtype]


def check_storage(array: Array, dtype: DType, name: str) -> None:
    """Raise :class:`DTypeError` unless ``array``, called ``name``, has the NumPy dtype that stores ``dtype``."""
    if array.dtype != _STORAGE[dtype]:
        raise DTypeError(
            f"{name} is {dtype} and must be stored as a {_STORAGE[dtype]} array, got {array.dtype}",
            hint="bf16 and 8-bit floats are passed as the unsigned integers of their bits",
        )


def decode(array: Array, dtype: DType) -> Array:
    """The values of an array in memory."""
    if dtype is bf16:
        return (np.asarray(array).astype(np.uint32) << 16).view(np.float32)
    if dtype.is_narrow:
        return np.asarray(_codes(dtype)[array])
    with np.errstate(invalid="ignore"):  # a signalling NaN stays one of the values
        return np.asarray(array).astype(_COMPUTE[dtype], copy=False)


def encode(values: Array, dtype: DType) -> Array:
    """``values`` as an array in memory, rounded to nearest with ties to even; NaN stays NaN.

    Floats below 32 bits are rounded from ``float32``, since PyTorch converts everything to ``float`` first.
    """
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if dtype is bf16:
            return _encode_bf16(values.astype(np.float32, copy=False))
        if dtype.is_narrow:
            return _encode_narrow(values.astype(np.float32, copy=False), dtype)
        if dtype is f16:
            return values.astype(np.float32, copy=False).astype(np.float16)
        return values.astype(_STORAGE[dtype], copy=False)


def round_to(values: Array, dtype: DType) -> Array:
    """``values`` rounded to ``dtype``, still as an array for computation."""
    return (
        decode(encode(values, dtype), dtype)
        if dtype.is_low_precision
        else values.astype(_COMPUTE[dtype], copy=False)
    )


def _encode_bf16(values: Array) -> Array:
    bits = np.atleast_1d(values).view(np.uint32)
    # Adding just under half of the last remaining bit, plus that bit, rounds ties to even.
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    rounded = np.where(np.isnan(np.atleast_1d(values)), np.uint16(0x7FC0), rounded)
    return rounded.reshape(np.shape(values))


@cache
def _codes(dtype: DType) -> Array:
    """The value of each of the 256 codes of an 8-bit float."""
    codes, mantissa, largest = np.arange(256), dtype.mantissa, dtype.largest_code
    exponent = (codes & 0x7F) >> mantissa
    fraction = (codes & ((1 << mantissa) - 1)) / (1 << mantissa)
    normal = np.ldexp(1.0 + fraction, exponent - dtype.bias)
    values = np.where(exponent == 0, np.ldexp(fraction, 1 - dtype.bias), normal)
    values = np.where(codes & 0x80, -values, values).astype(np.float32)
    if dtype.unsigned_zero:
        values[0x80] = np.nan
    else:
        values[largest + 1 : 0x80] = np.nan
        values[0x80 + largest + 1 :] = -np.float32(np.nan)
    if not dtype.finite:
        values[largest + 1], values[0x80 + largest + 1] = np.inf, -np.inf
    values.flags.writeable = False
    return values


def _encode_narrow(values: Array, dtype: DType) -> Array:
    largest, nan = dtype.largest_code, 0x80 if dtype.unsigned_zero else 0x7F
    # Overflow gives infinity; without one it gives NaN if zero is unsigned, else it saturates, as in PyTorch.
    overflow = nan if dtype.unsigned_zero else largest if dtype.finite else largest + 1
    finite = _codes(dtype)[: largest + 1].astype(np.float64)
    # One step past the largest value: a value that rounds to it has overflowed.
    ladder = np.append(finite, 2 * finite[-1] - finite[-2])
    magnitude = np.abs(values.astype(np.float64))
    above = np.clip(np.searchsorted(ladder, magnitude), 1, len(ladder) - 1)
    low, high = magnitude - ladder[above - 1], ladder[above] - magnitude
    code = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
    code = np.where(code > largest, overflow, code)
    code = np.where(np.isnan(values), nan, code)
    negative = np.signbit(values) & (code < 0x80)
    if dtype.unsigned_zero:
        negative &= code != 0
    return np.where(negative, code | 0x80, code).astype(np.uint8)
