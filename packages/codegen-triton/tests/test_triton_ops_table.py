"""The operations table: all operations are there, and the differences between its two forms are known."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import get_args

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
        "litz_fmod", "litz_quotient", "litz_exp_flushed", "litz_reciprocal_of_normal", "litz_sort",
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


def test_the_brief_tanh_is_good_to_two_to_the_minus_21() -> None:
    x = np.concatenate([np.geomspace(1e-8, 90.0, 200_000), [0.2499999, 0.25, 0.2500001]]).astype(np.float32)
    square = x * x
    series = np.polynomial.polynomial.polyval(
        square, np.array([1.0, -0.33333333, 0.13333333, -0.053968254, 0.021869488], np.float32)
    )
    power = np.exp(x * np.float32(-2.0))
    brief = np.where(x < 0.25, x * series, (1 - power) / (1 + power))
    assert brief.dtype == np.float32
    exact = np.tanh(x.astype(np.float64))
    assert np.max(np.abs(brief - exact) / exact) < 2.0**-21
    for constant in ("0.021869488", "0.053968254", "0.13333333", "0.33333333", "0.25"):
        assert constant in FUNCTIONS["litz_brief_tanh"]


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
