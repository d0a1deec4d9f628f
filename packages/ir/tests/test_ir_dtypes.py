"""The facts of a dtype's row follow from its codes, and decide which conversions are exact."""

from __future__ import annotations

import numpy as np
import pytest

from litz_ir.dtypes import ALL, DType, bf16, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f16, f32, f64
from litz_ir.interp.encoding import Array, decode, round_to, storage_dtype
from litz_ir.scalar import Const, cast, const

NARROW = [dtype for dtype in ALL if dtype.is_low_precision]


def values_of(dtype: DType) -> Array:
    """Return the value of each code of a low-precision float."""
    codes = np.arange(1 << dtype.bits, dtype=np.dtype(f"u{dtype.itemsize}"))
    with np.errstate(invalid="ignore"):  # signalling NaN
        return decode(codes.view(storage_dtype(dtype)), dtype).astype(np.float64)


def finite_values(dtype: DType) -> Array:
    values = values_of(dtype)
    return values[np.isfinite(values)]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_limits_are_those_of_all_codes(dtype: DType) -> None:
    values, finite = values_of(dtype), finite_values(dtype)
    assert dtype.largest == finite.max() == values[dtype.largest_code]
    assert dtype.smallest == finite[finite > 0].min()
    assert dtype.finite == (not np.isinf(values).any())
    assert dtype.unsigned_zero == (not np.signbit(finite[finite == 0]).any())


@pytest.mark.parametrize("dtype", [f64, f32, f16], ids=str)
def test_limits_are_those_of_numpy(dtype: DType) -> None:
    known = np.finfo(storage_dtype(dtype))
    assert (dtype.largest, dtype.smallest) == (float(known.max), float(known.smallest_subnormal))
    assert dtype.mantissa == known.nmant


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_a_float_represents_what_it_keeps_unrounded(dtype: DType) -> None:
    for other in NARROW:
        kept = bool((round_to(finite_values(other), dtype) == finite_values(other)).all())
        assert dtype.represents(other) == (kept and other.bits < dtype.bits)
    assert f32.represents(dtype) and f64.represents(dtype) and f64.represents(f32)
    assert not any(dtype.represents(other) or other.represents(dtype) for other in ALL if not other.is_float)


def test_a_literal_zero_is_left_to_the_machine_where_the_dtype_has_no_negative_one() -> None:
    for dtype in (f16, bf16, f8e4m3fn, f8e5m2):
        found = cast(const(-0.0, dtype), f32)
        assert isinstance(found, Const) and str(found.value) == "-0.0"
    for dtype in (f8e4m3fnuz, f8e5m2fnuz):
        assert not isinstance(cast(const(-0.0, dtype), f32), Const)
