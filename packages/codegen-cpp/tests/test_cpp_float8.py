"""Conversions of 8-bit floats in the headers, for each instruction set, against the interpreter's over all codes."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from importlib.resources import files
from itertools import product

import numpy as np
import pytest
from cpp_units import Array, build_unit, call, runnable

from litz_ir import dtypes
from litz_ir.dtypes import DType, bf16
from litz_ir.interp import scalar
from litz_ir.interp.encoding import decode, encode, round_to

FORMATS = tuple(dtype.name for dtype in dtypes.ALL if dtype.is_narrow)
CODES = np.arange(256, dtype=np.uint8)

UNIT = """
#include <litz/float8.h>
using namespace litz;
#define FLOAT8(N)                                                                                              \\
  extern "C" void widen_##N##_all(const N* x, float* y, float* z, int64_t n) {                                 \\
    for (int64_t i = 0; i < n; i += LITZ_LANES) store_partial(y + i, n - i, load_partial(x + i, n - i));       \\
    for (int64_t i = 0; i < n; ++i) z[i] = load_scalar(x + i);                                                 \\
  }                                                                                                            \\
  extern "C" void narrow_##N##_all(const float* x, N* y, N* z, int64_t n) {                                    \\
    for (int64_t i = 0; i < n; i += LITZ_LANES) store_partial(y + i, n - i, load_partial(x + i, n - i));       \\
    for (int64_t i = 0; i < n; ++i) store_scalar(z + i, x[i]);                                                 \\
  }                                                                                                            \\
  extern "C" void round_##N##_all(const float* x, float* y, float* z, int64_t n) {                             \\
    for (int64_t i = 0; i < n; i += LITZ_LANES)                                                                \\
      store_partial(y + i, n - i, round_##N(load_partial(x + i, n - i)));                                      \\
    for (int64_t i = 0; i < n; ++i) z[i] = round_##N(x[i]);                                                    \\
  }                                                                                                            \\
  extern "C" void nextafter_##N##_all(const float* a, const float* b, float* y, float* z, int64_t n) {         \\
    for (int64_t i = 0; i < n; i += LITZ_LANES)                                                                \\
      store_partial(y + i, n - i, nextafter_##N(load_partial(a + i, n - i), load_partial(b + i, n - i)));      \\
    for (int64_t i = 0; i < n; ++i) z[i] = nextafter_##N(a[i], b[i]);                                          \\
  }
"""


@pytest.fixture(
    scope="module", params=[*product(runnable(), [1]), (runnable()[0], 2)], ids=lambda p: f"{p[0]}x{p[1]}"
)
def unit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    name, widen = request.param
    source = UNIT + "\n".join(f"FLOAT8({each})" for each in FORMATS)
    return build_unit(source, name, tmp_path_factory.mktemp("float8"), widen=widen)


@cache
def floats(dtype: DType) -> Array:
    """All numbers of bf16 and f16, one f32 in 65,537, and the neighbours of all that rounds to another code."""
    words = np.arange(1 << 16, dtype=np.uint16)
    strided = np.arange(0, 1 << 32, 65537, dtype=np.uint64).astype(np.uint32).view(np.float32)
    values = decode(CODES, dtype).astype(np.float64)
    sizes = np.unique(np.abs(values[np.isfinite(values)]))
    beyond = sizes[-1] + (sizes[-1] - sizes[-2]) * np.array([0.5, 1, 1.5, 2])
    with np.errstate(over="ignore"):  # beyond the largest float where the format reaches as far
        places = np.concatenate([sizes, (sizes[1:] + sizes[:-1]) / 2, beyond]).astype(np.float32)
    near = [np.nextafter(places, np.float32(side)) for side in (np.inf, -np.inf)]
    near = np.concatenate([places, *near])
    with np.errstate(invalid="ignore"):
        halves = words.view(np.float16).astype(np.float32)
    return np.concatenate([decode(words, bf16), halves, strided, near, -near])


def test_the_header_has_the_formats_of_the_rows() -> None:
    text = (files("litz_codegen_cpp") / "include" / "litz" / "float8.h").read_text(encoding="utf-8")
    found = dict(re.findall(r"struct float8_of<(\w+)> : float8_format<([^>]*)>", text))
    assert set(found) == set(FORMATS)
    for name, numbers in found.items():
        row, (mantissa, bias, largest, beyond) = dtypes.dtype(name), (int(n, 0) for n in numbers.split(", "))
        assert (mantissa, bias, largest) == (row.mantissa, row.bias, row.largest_code)
        assert (beyond > 0x7F) == row.unsigned_zero


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_is_read(unit: ctypes.CDLL, name: str) -> None:
    vector, lone = np.zeros(256, np.float32), np.zeros(256, np.float32)
    call(unit, f"widen_{name}_all", CODES, vector, lone, 256)
    want = decode(CODES, dtypes.dtype(name))
    for got in (vector, lone):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(vector.view(np.uint32), lone.view(np.uint32))
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(vector[number]), np.signbit(want[number]))


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_written_and_rounded(unit: ctypes.CDLL, name: str) -> None:
    dtype = dtypes.dtype(name)
    x = floats(dtype)
    want = encode(x, dtype)
    vector, lone = np.zeros(len(x), np.uint8), np.zeros(len(x), np.uint8)
    call(unit, f"narrow_{name}_all", x, vector, lone, len(x))
    np.testing.assert_array_equal(vector, want)
    np.testing.assert_array_equal(lone, want)
    vector, lone = np.zeros_like(x), np.zeros_like(x)
    call(unit, f"round_{name}_all", x, vector, lone, len(x))
    for got in (vector, lone):
        np.testing.assert_array_equal(got, round_to(x, dtype))
        np.testing.assert_array_equal(encode(got, dtype), want)


@pytest.mark.parametrize("name", FORMATS)
def test_neighbours_are_those_of_the_interpreter(unit: ctypes.CDLL, name: str) -> None:
    dtype = dtypes.dtype(name)
    values = decode(CODES, dtype)
    a, b = np.repeat(values, 256), np.tile(values, 256)
    vector, lone = np.zeros_like(a), np.zeros_like(a)
    call(unit, f"nextafter_{name}_all", a, b, vector, lone, len(a))
    want = scalar.apply("nextafter", [a, b], dtype, dtype)
    for got in (vector, lone):
        np.testing.assert_array_equal(got, want)
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))
