"""The operations table: all operations are there, and the differences between its two forms are known."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import litz_codegen_triton
from litz_codegen_triton.emit.library.registry import COMPILED_FUNCTIONS, FUNCTIONS, called, library_source
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.ops_table import SPELLINGS, Form, differing_rows, pointer_type, spelling
from litz_ir.dtypes import ALL, b1, bf16, f8e4m3fnuz, f8e5m2fnuz, f32, i32, i64
from litz_ir.errors import CodegenError, DTypeError
from litz_ir.scalar import OPS
from litz_ir.scalar.build import result_dtype

DTYPES = [dtype for dtype in ALL if dtype not in (f8e4m3fnuz, f8e5m2fnuz)]
CONVERSIONS = {"cast", "bitcast"}


def test_every_operation_has_a_row() -> None:
    assert SPELLINGS.keys() == OPS.keys() - CONVERSIONS


@pytest.mark.parametrize("name", sorted(SPELLINGS))
def test_a_row_serves_every_dtype_that_the_operation_accepts(name: str) -> None:
    row = OPS[name]
    served = 0
    for dtype in DTYPES:
        if row.rule == "random" or (dtype.bits == 8 and dtype.is_float):
            continue
        try:
            result_dtype(row, ((b1,) if row.rule == "where" else ()) + (dtype,) * 2, None)
        except DTypeError:
            continue
        found = spelling(name, dtype)
        for form in get_args(Form):
            text = found.in_form(form)
            assert {f"{{{k}}}" for k in range(row.arity)} <= set(re.findall(r"\{\d\}", text)), text
        served += 1
    assert served or row.rule == "random"


def test_rows_with_another_spelling_in_the_interpreter_are_known() -> None:
    assert differing_rows() == {
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "erfc", "erfinv", "expm1", "fmod", "hypot",
        "lgamma", "log10", "log1p", "pow", "round", "sinh", "tan", "tanh", "trunc",
    }  # fmt: skip
    assert COMPILED_FUNCTIONS.keys() == {
        "litz_fmod", "litz_quotient", "litz_exp2_flushed", "litz_exp_flushed", "litz_reciprocal_of_normal", "litz_sort",
    }  # fmt: skip
    differing_pointers = [d for d in DTYPES if pointer_type(d, "compiled") != pointer_type(d, "interpreted")]
    assert differing_pointers == [bf16]


def test_every_libdevice_function_has_a_replacement() -> None:
    for rows in SPELLINGS.values():
        for row in rows.values():
            if row.libdevice:
                assert "libdevice" not in row.in_form("interpreted")
                assert called(row.in_form("interpreted")), row


def test_no_quotient_of_bf16_is_near_a_midpoint_of_bf16_values() -> None:
    # The distance relative to the quotient; 2 ulp of an f32 are 2^-22.
    nearest = Fraction(1)
    for a, b in itertools.product(range(128, 256), range(128, 256)):
        quotient = Fraction(a, b) * (2 if a < b else 1)
        midpoint = Fraction(2 * floor(quotient * 128) + 1, 256)
        nearest = min(nearest, abs(quotient - midpoint) / quotient)
    assert nearest > Fraction(1, 2**18)


def constants_of(function: str) -> list[np.float32]:
    """Return the numbers with a fraction in a function of the library, in the order of its text."""
    return [np.float32(each) for each in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", FUNCTIONS[function])]


def test_the_tanh_of_f32_is_good_to_two_ulp() -> None:
    third, second, first, zeroth, one, least = (np.float64(each) for each in (
        0.016458770260214806, -0.052684150636196136, 0.13320942223072052, -0.33332958817481995, 1.0, 0.55
    ))  # fmt: skip
    assert constants_of("litz_tanh_of_f32")[:5] == [
        np.float32(each) for each in (third, second, first, zeroth, one)
    ]
    x = np.concatenate([np.geomspace(1e-8, 40.0, 200_000), [0.5499999, 0.55, 0.5500001]]).astype(np.float32)
    square = x * x
    series = rounded(square, rounded(square, third, second), first)
    near = x * rounded(square, rounded(square, series, zeroth), one)
    power = np.exp2(x * np.float32(2.8853900817779268))
    far = rounded(1 / (1 + power), np.float64(-2.0), one)
    found = np.where(x < np.float32(least), near, far)
    exact = np.tanh(x.astype(np.float64))
    assert found.dtype == np.float32
    assert np.max(np.abs(found - exact) / exact) < 2.0**-22


def test_one_plus_erf_is_as_exact_as_the_sum() -> None:
    *numbers, log2_e, two = constants_of("litz_one_plus_erf")
    bound, *coefficients = numbers
    assert (bound, log2_e, two, len(coefficients)) == (3.75, np.float32(-1.4426950408889634), 2.0, 9)
    x = np.concatenate([np.linspace(-6.0, 6.0, 200_001), np.geomspace(1e-8, 1.0, 9999)]).astype(np.float32)
    size, near = np.abs(x), np.minimum(np.abs(x), bound)
    power = np.full_like(x, coefficients[0])
    for each in coefficients[1:]:
        power = rounded(near, power, np.float64(each))
    tail = np.exp2(rounded(size * log2_e, size, power * near))
    found = np.where(x < 0, tail, np.float32(2.0) - tail)
    exact = np.array([math.erfc(-each) for each in x.tolist()])
    summed = np.float32(1.0) + np.array([math.erf(each) for each in x.tolist()], np.float32)
    assert found.dtype == np.float32
    assert np.max(np.abs(found - exact)) < 1.6e-7
    assert np.std(found - exact) < 1.1 * np.std(summed - exact)
    small = (x < -1) & (x > -3.7)
    assert np.max(np.abs(found - exact)[small] / exact[small]) < 1e-5
    assert np.max(np.abs(summed - exact)[small] / exact[small]) > 1e-2, "the sum cancels"


def rounded(a: np.ndarray, b: Any, c: Any) -> np.ndarray:
    """Return a fused multiply-add of f32 values, rounded once but for rare ties."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


def test_every_function_of_the_library_is_used() -> None:
    package = Path(litz_codegen_triton.__file__).parent
    text = "\n".join(path.read_text() for path in package.rglob("*.py"))
    for name in FUNCTIONS:
        family = re.sub(r"_(floor_div|floor_mod|argmin|argmax)$", "_", name)
        uses = len(re.findall(rf"\b{name}\b", text)) + (family != name)
        formatted = name.removeprefix("litz_") in SPELLINGS
        assert uses > 1 or formatted, f"{name} is defined and never called"


def test_the_library_lists_callees_first() -> None:
    (*before, last) = library_source(["litz_sinh"], compiled=False)
    assert last.startswith("@triton.jit\ndef litz_sinh(")
    assert any("def litz_expm1_64(" in text for text in before)
    assert "libdevice.fmod" in library_source(["litz_remainder"], compiled=True)[0]
    assert "libdevice" not in "".join(library_source(FUNCTIONS, compiled=False))


def test_casts_say_how_they_round() -> None:
    assert casts.cast("x", f32, bf16, "compiled") == "x.to(tl.bfloat16).to(tl.float32)"
    assert casts.cast("x", f32, bf16, "interpreted") == "litz_bf16_value(litz_bf16_bits(x))"
    assert casts.cast("x", bf16, f32, "compiled") == "x"
    assert casts.bitcast("x", f32, i32, "compiled") == "x.to(tl.int32, bitcast=True)"


def test_unknown_operations_and_dtypes_are_refused() -> None:
    with pytest.raises(CodegenError, match="no Triton spelling"):
        spelling("no_such", i64)
    with pytest.raises(CodegenError, match="f8e4m3fnuz"):
        pointer_type(f8e4m3fnuz)
