"""The meaning of every scalar operation, compared with hand-made values and independent arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from litz_ir import dtypes
from litz_ir.dtypes import (
    DType,
    b1,
    bf16,
    f8e4m3fn,
    f8e5m2,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from litz_ir.errors import DTypeError
from litz_ir.interp.encoding import (
    Array,
    check_storage,
    compute_type,
    decode,
    encode,
    round_to,
    storage_dtype,
)
from litz_ir.interp.philox import philox, random_bits, random_normal, random_uniform
from litz_ir.interp.scalar import MEANINGS, apply
from litz_ir.scalar import build
from litz_ir.scalar.expr import Const, Op
from litz_ir.scalar.ops_table import OPS

NARROW = [d for d in dtypes.ALL if d.is_low_precision]
nan, inf = math.nan, math.inf


def run(name: str, dtype: DType, *columns: Sequence[Any] | Array, result: DType | None = None) -> list[Any]:
    row = OPS[name]
    result = result or (b1 if row.rule in ("compare", "test") else dtype)
    args = [np.array(column).astype(compute_type(dtype)) for column in columns]
    found: list[Any] = apply(name, args, dtype, result).tolist()
    return found


def test_every_row_has_a_meaning_and_every_meaning_a_row() -> None:
    assert MEANINGS.keys() == OPS.keys()


def sample(dtype: DType) -> Array:
    values = np.array([0, 1, 2, 3, 1, 0, 5, 7])
    if dtype.is_signed:
        values = np.concatenate([values, [-1, -2, -3]])
    return round_to(values * 0.5, dtype) if dtype.is_float else values.astype(compute_type(dtype))


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_row_runs_on_every_dtype_it_accepts(name: str) -> None:
    row = OPS[name]
    for dtype in dtypes.ALL:
        accepted = {
            "any": True,
            "number": not dtype.is_bool,
            "float": dtype.is_float,
            "integer": dtype.is_integer,
            "bits": not dtype.is_float,
            "bool": dtype.is_bool,
        }[row.accepts]
        if not accepted or (row.rule == "random" and dtype != i64):
            continue
        results = [b1 if row.rule in ("compare", "test") else dtype]
        if row.rule in ("cast", "bitcast"):
            results = [d for d in dtypes.ALL if row.rule == "cast" or d.bits == dtype.bits]
        if row.rule == "random":
            results = [i64, u8, b1] if name == "random_bits" else [f64, f32, bf16, f16]
        args = [sample(dtype)] * row.arity
        if row.rule == "where":
            args[0] = sample(dtype) != 0
        for result in results:
            value = apply(name, args, dtype, result)
            assert value.dtype == compute_type(result)
            assert value.shape == args[-1].shape
            if result.is_low_precision:
                again = round_to(value, result)
                assert np.array_equal(value, again, equal_nan=True), f"{name} left {result} unrounded"


# --- encoding -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_code_survives_decoding_and_encoding(dtype: DType) -> None:
    codes = np.arange(2**dtype.bits, dtype=np.uint64).astype(np.uint16 if dtype.bits == 16 else np.uint8)
    stored = codes.view(storage_dtype(dtype))
    values = decode(stored, dtype)
    number = ~np.isnan(values)
    assert np.array_equal(encode(values, dtype).view(codes.dtype)[number], codes[number])
    assert np.isnan(decode(encode(values, dtype), dtype))[~number].all()


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@given(st.floats(width=32, allow_nan=False))
def test_rounding_gives_the_nearest_value_with_an_even_code(dtype: DType, x: float) -> None:
    codes = np.arange(2 ** (dtype.bits - 1), dtype=np.uint64).astype(
        np.uint16 if dtype.bits == 16 else np.uint8
    )
    table = decode(codes.view(storage_dtype(dtype)), dtype)
    table = table[np.isfinite(table)].astype(np.float64)
    rounded = float(round_to(np.array(x, np.float32), dtype))
    if abs(x) > table[-1]:
        half_step = (table[-1] - table[-2]) / 2
        assert abs(rounded) == table[-1] or math.isinf(rounded) or math.isnan(rounded)
        if dtype in (f16, bf16, f8e5m2):
            assert math.isinf(rounded) == (abs(x) >= table[-1] + half_step)
        return
    distance = np.abs(table - abs(x))
    best = np.flatnonzero(distance == distance.min())
    expected = best[0] if len(best) == 1 or best[0] % 2 == 0 else best[1]
    assert abs(rounded) == table[expected]


def test_overflow_follows_the_format() -> None:
    big = np.array([464.0, 465.0, inf, -inf], np.float32)
    assert round_to(big, f8e4m3fn).tolist() == [448.0, 448.0, 448.0, -448.0]
    assert round_to(big * 1000, f8e5m2).tolist() == [inf, inf, inf, -inf]
    assert np.isnan(round_to(big, dtypes.f8e4m3fnuz)).all()
    assert not np.signbit(round_to(np.array([-1e-9], np.float32), dtypes.f8e4m3fnuz))[0]


def test_nan_has_a_sign_where_zero_has_one() -> None:
    both = np.array([np.nan, -np.float32(np.nan)], np.float32)
    assert np.signbit(both).tolist() == [False, True]
    for dtype in (f8e4m3fn, f8e5m2):
        assert encode(both, dtype).tolist() == [0x7F, 0xFF]
        assert np.signbit(round_to(both, dtype)).tolist() == [False, True]
    for dtype in (dtypes.f8e4m3fnuz, dtypes.f8e5m2fnuz):
        assert encode(both, dtype).tolist() == [0x80, 0x80]


def test_a_wrong_array_is_refused_by_name() -> None:
    with pytest.raises(
        DTypeError, match=r"input x is bf16 and must be stored as a uint16 array, got float32"
    ):
        check_storage(np.zeros(3, np.float32), bf16, "input x")


# --- casts --------------------------------------------------------------------------------------------------


def test_float_to_integer_truncates_and_gives_the_indefinite_value_outside() -> None:
    x = [1.9, -1.9, nan, inf, -inf, 3e9, 300.0]
    low = -(2**31)
    assert run("cast", f32, x, result=i32) == [1, -1, low, low, low, low, 300]
    assert run("cast", f32, x, result=i64)[2:5] == [-(2**63)] * 3
    assert run("cast", f32, x, result=i8) == [1, -1, 0, 0, 0, 0, 44]
    assert run("cast", f32, [-1.0, 300.0], result=u8) == [255, 44]
    assert run("cast", f32, [-1.0, 70000.0], result=u16) == [65535, 4464]
    assert run("cast", f64, [-1.0, 2.0**32], result=u32) == [2**32 - 1, 0]
    assert run("cast", f64, [-1.0, 2.0**63, 2.0**64, nan], result=u64) == [2**64 - 1, 2**63, 0, 2**63]


def test_integer_casts_wrap_and_bool_casts_test() -> None:
    assert run("cast", i32, [300, -1], result=i8) == [44, -1]
    assert run("cast", i64, [-1], result=u64) == [2**64 - 1]
    assert run("cast", f32, [0.0, -0.0, nan, 0.1], result=b1) == [False, False, True, True]
    assert run("cast", b1, [True, False], result=f32) == [1.0, 0.0]


def test_casts_to_narrow_floats_go_through_f32() -> None:
    # 1 + 2**-8 + 2**-40 is above the tie in f64; rounded to f32 it is the tie, which goes to even.
    assert run("cast", f64, [1 + 2**-8 + 2**-40], result=bf16) == [1.0]


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f16, dtypes.bf16])
@pytest.mark.parametrize("value", [0.3, -1e-3, 666.7499906003527, 3.0, 1e30, 7e4, -0.0])
def test_a_widened_literal_is_first_rounded_to_its_dtype(dtype: DType, value: float) -> None:
    widened = build.cast(build.const(value, dtype), dtypes.f64)
    if isinstance(widened, Const):
        assert widened.value == round_to(np.array([value], np.float32), dtype)[0]
    else:
        assert widened == Op("cast", (build.const(value, dtype),), dtypes.f64)
        assert value not in (0.3, -1e-3, 3.0, -0.0), "ordinary literals are converted at once"


def test_bitcast_keeps_bits() -> None:
    assert run("bitcast", f32, [1.0, -0.0], result=i32) == [0x3F800000, -(2**31)]
    assert run("bitcast", bf16, [1.0], result=i16) == [0x3F80]
    assert run("bitcast", u16, [0x3F80], result=bf16) == [1.0]


# --- arithmetic ---------------------------------------------------------------------------------------------


def test_integers_wrap() -> None:
    assert run("add", i8, [127], [1]) == [-128]
    assert run("mul", i32, [2**30], [4]) == [0]
    assert run("neg", i8, [-128]) == [-128]
    assert run("abs", i8, [-128]) == [-128]
    assert run("pow", i64, [3, 2, -1, 1, 5, 0], [39, 63, -3, -7, -1, -1]) == [3**39, -(2**63), -1, 1, 0, 0]


@given(st.integers(-128, 127), st.integers(-128, 127))
def test_integer_divisions_follow_python_and_c(a: int, b: int) -> None:
    if b == 0:
        assert [run(n, i8, [a], [b]) for n in ("floor_div", "remainder", "trunc_div", "fmod")] == [[0]] * 4
        return
    wrap = -128 if (a, b) == (-128, -1) else None
    c_quotient = int(Fraction(a, b))
    assert run("floor_div", i8, [a], [b]) == [wrap if wrap else a // b]
    assert run("trunc_div", i8, [a], [b]) == [wrap if wrap else c_quotient]
    assert run("remainder", i8, [a], [b]) == [a % b]
    assert run("fmod", i8, [a], [b]) == [a - b * c_quotient]


def test_float_divisions() -> None:
    a, b = [7.0, -7.0, 7.0, 1.0, -1.0, 5.0, inf], [2.0, 2.0, -2.0, 0.0, 0.0, -inf, 1.0]
    assert run("remainder", f32, a[:3], b[:3]) == [1.0, 1.0, -1.0]
    assert run("fmod", f32, a[:3], b[:3]) == [1.0, -1.0, 1.0]
    assert run("floor_div", f32, a[:6], b[:6]) == [3.0, -4.0, -4.0, inf, -inf, -1.0]
    assert math.isnan(run("remainder", f32, [1.0], [0.0])[0])
    assert math.isnan(run("floor_div", f32, [inf], [1.0])[0])


def test_nan_and_zero_rules() -> None:
    assert math.isnan(run("minimum", f32, [nan], [1.0])[0]) and math.isnan(
        run("maximum", f32, [1.0], [nan])[0]
    )
    assert run("fmin", f32, [nan, 2.0], [1.0, nan]) == [1.0, 2.0]
    assert run("sign", f32, [nan, -2.0, 0.0]) == [0.0, -1.0, 0.0]
    assert run("round", f32, [0.5, 1.5, 2.5, -0.5]) == [0.0, 2.0, 2.0, -0.0]
    assert run("signbit", f32, [-0.0, 0.0]) == [True, False]
    assert run("ne", f32, [nan], [nan]) == [True]


def test_narrow_floats_round_after_every_operation() -> None:
    # 256 + 1 lies between two bf16 values; in f32 nothing is lost.
    assert run("add", bf16, [256.0], [1.0]) == [256.0]
    assert run("add", f32, [256.0], [1.0]) == [257.0]
    assert run("mul", f16, [300.0], [300.0]) == [inf]


def test_shifts_past_the_width() -> None:
    assert run("shift_left", i32, [1, 1, 1, 1], [4, 31, 32, -1]) == [16, -(2**31), 0, 0]
    assert run("shift_right", i32, [-8, -8, 8, 8], [1, 40, 40, -1]) == [-4, -1, 0, 0]
    assert run("shift_right", u8, [255], [8]) == [0]


def test_nextafter_steps_in_the_dtype() -> None:
    assert run("nextafter", bf16, [1.0, 0.0, -1.0], [2.0, 1.0, 0.0]) == [1.0078125, 2.0**-133, -0.99609375]
    assert run("nextafter", f32, [1.0], [2.0]) == [1 + 2**-23]
    assert run("nextafter", f16, [0.0], [-1.0]) == [-(2.0**-24)]


def fused(a: float, b: float, c: float) -> float:
    (found,) = run("fma", f64, [a], [b], [c])
    return float(found)


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE, FINITE, FINITE)
@example(1e200, 1e108, -1e308)
@example(1.5, 5e-324, 0.0)
@example(2.0**-600, -(2.0**-474), 0.0)
@example(-(2.0**-600), 2.0**-600, 0.0)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.inf if exact > 0 else -math.inf
    found = fused(a, b, c)
    assert found == expected
    assert not a or not b or math.copysign(1, found) == math.copysign(1, expected)


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        (1.7e308, -1.5, math.inf, math.inf),
        (1.7e308, 1.5, -math.inf, -math.inf),
        (0.5, -0.0, -0.0, -0.0),
        (0.5, -0.0, 0.0, 0.0),
        (-0.0, 0.0, -0.0, -0.0),
        (3.0, 2.0, -6.0, 0.0),
        (math.inf, 2.0, 1.0, math.inf),
        (0.0, 1.0, 5.0, 5.0),
    ],
)
def test_fma_of_infinities_and_zeros(a: float, b: float, c: float, expected: float) -> None:
    found = fused(a, b, c)
    assert (found, math.copysign(1, found)) == (expected, math.copysign(1, expected))
    assert all(
        math.isnan(fused(*each))
        for each in ((math.inf, 0.0, 1.0), (math.inf, 1.0, -math.inf), (1.0, 1.0, math.nan))
    )


def test_special_functions_agree_with_the_standard_library() -> None:
    x = np.linspace(-4, 4, 41) + 0.03
    for name, function in (("erf", math.erf), ("erfc", math.erfc), ("lgamma", math.lgamma)):
        assert run(name, f64, x) == pytest.approx([function(v) for v in x], rel=1e-15)
    inside = np.concatenate([np.linspace(-0.999, 0.999, 37), [1e-12, 1 - 1e-12]])
    assert [math.erf(v) for v in run("erfinv", f64, inside)] == pytest.approx(inside.tolist(), rel=1e-14)
    assert run("erfinv", f64, [1.0, -1.0]) == [inf, -inf] and math.isnan(run("erfinv", f64, [1.5])[0])
    step = 1e-5
    slope = [(math.lgamma(v + step) - math.lgamma(v - step)) / (2 * step) for v in x]
    assert run("digamma", f64, x) == pytest.approx(slope, rel=1e-5, abs=1e-5)
    assert run("digamma", f64, [0.0, -0.0]) == [-inf, inf] and math.isnan(run("digamma", f64, [-3.0])[0])
    assert run("digamma", f64, [1.0]) == pytest.approx([-0.5772156649015329], rel=1e-15)
    assert run("lgamma", f64, [0.0, -2.0]) == [inf, inf]


# --- random numbers -----------------------------------------------------------------------------------------


def test_philox_known_answers() -> None:
    words = philox(np.array(0), np.array(0))
    assert [int(w) for w in words] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_random_numbers_have_their_distribution() -> None:
    seed, counter = np.array(1234), np.arange(20000)
    uniform = random_uniform(seed, counter, f32)
    assert 0 <= uniform.min() and uniform.max() < 1
    assert uniform.mean() == pytest.approx(0.5, abs=0.01)
    assert round_to(random_uniform(seed, counter, bf16), bf16).max() < 1
    normal = random_normal(seed, counter, f32)
    assert (normal.mean(), normal.std()) == (pytest.approx(0, abs=0.02), pytest.approx(1, abs=0.02))
    assert random_bits(seed, counter, b1).mean() == pytest.approx(0.5, abs=0.02)
    assert np.array_equal(random_uniform(seed, counter, f32), uniform)
    assert not np.array_equal(random_uniform(np.array(1235), counter, f32), uniform)


def test_gcd_is_of_absolute_values() -> None:
    assert run("gcd", i32, [12, -12, 0, 7, 0, -(2**31)], [18, 18, 5, 0, 0, 12]) == [6, 6, 5, 7, 0, 4]
    assert run("gcd", u8, [200, 255], [150, 17]) == [50, 17]


def test_zeta() -> None:
    found = run(
        "zeta", f64, [2, 4, 2, 3, 2, 1, 0.5, 2.5, 2, 3, nan], [1, 1, 0.5, -0.5, -2, 3, 3, -0.5, inf, -1.5, 1]
    )
    half = 8.414398322117159  # zeta(3, 0.5)
    expected = [math.pi**2 / 6, math.pi**4 / 90, math.pi**2 / 2, half - 8]
    expected += [inf, inf, nan, nan, nan, half - 8 - 8 / 27, nan]
    assert found == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_incomplete_gamma_functions_without_their_powers() -> None:
    a, x = [1, 2.5, 0.5, 300, 3, nan, 2, 1], [0, 1.5, 4, 310, inf, 1, nan, 1e300]
    series = [1, 1.6215544729517435, 24.080006057145614, 36.933067096245, inf, nan, nan, inf]
    assert run("gamma_series", f64, a, x) == pytest.approx(series, rel=1e-12, nan_ok=True)
    # Gamma(1, x) = exp(-x), Gamma(2, x) = (x + 1) exp(-x), Gamma(1/2, x) = sqrt(pi) erfc(sqrt(x))
    found = run("gamma_fraction", f64, [1, 2, 0.5, nan], [3, 4, 2.25, 1])
    half = math.sqrt(math.pi) * math.erfc(1.5) * math.exp(2.25) / 1.5
    assert found == pytest.approx([1 / 3, 5 / 16, half, nan], rel=1e-12, nan_ok=True)


def test_three_term_sequences_of_a_data_dependent_length() -> None:
    fibonacci = [[1.0] * 9, [0.0] * 9, [1.0] * 9, [-1.0] * 9, [0.0] * 9, [0.0] * 9]
    found = run("three_term", f32, [0, 1, 2, 7.9, -0.5, -1, nan, inf, 1e30], *fibonacci)
    assert found == [1, 1, 2, 21, 1, 0, 0, 0, 0]
    # Legendre's: (k + 1) q[k + 1] = (2 k + 1) x q[k] - k q[k - 1]
    assert run("three_term", f64, [3.0], [0.5], [1.0], [0.5], [0.0], [1.0], [1.0]) == [-0.4375]
    assert math.isnan(run("three_term", f32, [500.0], [3e38], [0.0], [9.0], [1.0], [0.0], [0.0])[0])
