"""The vector maths against exact values, for each instruction set, in vector and scalar form."""

from __future__ import annotations

import ctypes
import platform
from typing import Any

import numpy as np
import pytest
from cpp_units import Array, build_unit, call, runnable, ulps
from maths.functions import DTYPES, FUNCTIONS, UNFUSED, DType, Function
from maths.inputs import chunk
from maths.programs import Reference, reference
from maths.tally import added

from litz_codegen_cpp.toolchain.compilers import find_compiler
from litz_ir.dtypes import f32, f64
from litz_ir.errors import CompilerNotFound
from litz_ir.interp import scalar

INF, NAN = np.inf, np.nan

UNARY = [name for name, row in FUNCTIONS.items() if row.arity == 1]
# The largest distance from the exact value, in units of the last place, for float and for double.
BINARY = {
    "zeta": (1, 64), "pow": (0.6, 1), "atan2": (2, 1), "hypot": (1.5, 1),
    "fmod": (0, 0), "remainder": (0.5, 0.5), "floor_div": (0, 0), "trunc_div": (0, 0),
    "nextafter": (0, 0), "copysign": (0, 0), "minimum": (0, 0), "maximum": (0, 0), "fmin": (0, 0), "fmax": (0, 0),
}  # fmt: skip

UNIT = """
#include <litz/math.h>
#include <litz/memory.h>
using namespace litz;
#define UNARY(name, T)                                                                      \\
  extern "C" void vector_##name##_##T(const T* x, T* y, int64_t n) {                        \\
    for (int64_t i = 0; i < n; i += LITZ_LANES) store_partial(y + i, n - i, name(load_partial(x + i, n - i))); \\
  }                                                                                         \\
  extern "C" void scalar_##name##_##T(const T* x, T* y, int64_t n) {                        \\
    for (int64_t i = 0; i < n; ++i) y[i] = name(x[i]);                                      \\
  }
#define BINARY(name, T)                                                                     \\
  extern "C" void vector_##name##_##T(const T* a, const T* b, T* y, int64_t n) {            \\
    for (int64_t i = 0; i < n; i += LITZ_LANES)                                             \\
      store_partial(y + i, n - i, name(load_partial(a + i, n - i), load_partial(b + i, n - i))); \\
  }                                                                                         \\
  extern "C" void scalar_##name##_##T(const T* a, const T* b, T* y, int64_t n) {            \\
    for (int64_t i = 0; i < n; ++i) y[i] = name(a[i], b[i]);                                \\
  }
extern "C" void fma_float(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i + LITZ_LANES <= n; i += LITZ_LANES)
    store(y + i, fma(load(x + i), load(x + i), broadcast(-1.0f)));
}
"""
FLOATS: dict[str, type[np.floating[Any]]] = {"float": np.float32, "double": np.float64}


@pytest.fixture(scope="module", params=runnable())
def isa(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def unit(isa: str, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    rows = [f"UNARY({name}, {kind})" for name in UNARY for kind in FLOATS]
    rows += [f"BINARY({name}, {kind})" for name in BINARY for kind in FLOATS]
    return build_unit(UNIT + "\n".join(rows), isa, tmp_path_factory.mktemp("math"))


def specials(dtype: type[np.floating[Any]]) -> Array:
    info = np.finfo(dtype)
    edges = [0, 1, 2, 3, 0.5, 1.5, 2.5, 10, info.tiny, info.smallest_subnormal, info.max, info.eps, 1 - info.epsneg,
             2.0**23, 2.0**24 + 2, 2.0**31, 2.0**63, 1e-10, 1e10, 88.72, 89.5, 104, 709.7, 745, INF, 1.57]  # fmt: skip
    values = np.array(edges, np.float64).astype(dtype)
    return np.concatenate([values, -values, np.array([NAN], dtype)])


def sample(dtype: type[np.floating[Any]], count: int) -> Array:
    """Specials, random bit patterns, and numbers of ordinary size."""
    draw = np.random.default_rng(7)
    bits = draw.integers(0, 2**64, count, dtype=np.uint64)
    patterns = (
        (bits >> np.uint64(32)).astype(np.uint32).view(np.float32)
        if dtype is np.float32
        else bits.view(dtype)
    )
    ordinary = [draw.uniform(-size, size, count).astype(dtype) for size in (1, 8, 100)]
    return np.concatenate([specials(dtype), patterns, *ordinary])


def doubles(x: Array) -> Array:
    with np.errstate(invalid="ignore"):  # signalling NaNs among the patterns
        return x.astype(np.float64)


def run(unit: ctypes.CDLL, name: str, kind: str, *args: Array) -> tuple[Array, Array]:
    results = []
    for form in ("vector", "scalar"):
        out = np.full_like(args[0], 77)
        call(unit, f"{form}_{name}_{kind}", *args, out, len(out))
        results.append(out)
    return results[0], results[1]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Exact values; they take GCC's 113-bit floats and glibc's vector functions."""
    try:
        compiler = find_compiler()
    except CompilerNotFound as error:
        pytest.skip(str(error))
    if compiler.kind != "gcc" or platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc":
        pytest.skip("the reference takes GCC and glibc on x86-64")
    return reference(tmp_path_factory.mktemp("reference"))


def every(function: Function, dtype: DType, number: int) -> tuple[Array, Array]:
    """A part of a chunk of the exhaustive test: 2^15 floats or 2^13 doubles, all exponents among them."""
    if dtype == "f64":
        first, second = (each[: 1 << 13] for each in chunk(function, dtype, number))
    else:
        first, second = (each[number % 8 :: 8] for each in chunk(function, dtype, number))
    return np.ascontiguousarray(first), np.ascontiguousarray(second)


CASES = [(name, dtype) for name, row in FUNCTIONS.items() for dtype in DTYPES if row.bound(dtype) is not None]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_function_is_within_its_bound(
    unit: ctypes.CDLL, isa: str, judge: Reference, name: str, dtype: DType
) -> None:
    function = FUNCTIONS[name]
    kind = "float" if dtype == "f32" else "double"
    tallies = []
    for number in range(4):
        a, b = every(function, dtype, number)
        vector, lone = run(unit, name, kind, *(a, b)[: function.arity])
        np.testing.assert_array_equal(vector, lone)
        tallies.append(judge.judge(dtype, a, b, vector, judge.exact(function, dtype, a, b)))
    found, bound = added(tallies), function.bound(dtype, fused=isa not in UNFUSED)
    assert bound is not None and found.worst <= bound, found
    assert found.specials == 0, found


@pytest.mark.parametrize("name", UNARY)
def test_double_function_agrees_with_the_meaning_of_the_operation(unit: ctypes.CDLL, name: str) -> None:
    x = sample(np.float64, 500)
    vector, lone = run(unit, name, "double", x)
    want = scalar.apply(name, [x], f64, f64)
    if name in ("lgamma", "digamma", "erfinv", "tan"):
        # Near a zero of the function neither side keeps its relative precision.
        scale = np.maximum(np.abs(want), 1)
        with np.errstate(all="ignore"):
            close = np.abs(vector - want) <= 1e-14 * scale
        close |= (vector == want) | np.isnan(vector) & np.isnan(want)
        assert close.all(), (name, x[~close][:3], vector[~close][:3], want[~close][:3])
    else:
        distance = ulps(vector, want, np.float64)
        worst = int(np.argmax(distance))
        assert distance[worst] <= 4, (name, x[worst], vector[worst], want[worst])
    np.testing.assert_array_equal(vector, lone)


def pairs(dtype: type[np.floating[Any]]) -> tuple[Array, Array]:
    edges = specials(dtype)
    a, b = (np.ravel(v) for v in np.meshgrid(edges, edges))
    draw = np.random.default_rng(3)
    return (
        np.concatenate(
            [a, draw.uniform(-20, 20, 4000).astype(dtype), draw.uniform(0, 50, 4000).astype(dtype)]
        ),
        np.concatenate([b, draw.uniform(-6, 6, 4000).astype(dtype), draw.uniform(-9, 9, 4000).astype(dtype)]),
    )


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_function_of_two_floats_is_within_its_bound(unit: ctypes.CDLL, name: str, kind: str) -> None:
    dtype = FLOATS[kind]
    a, b = pairs(dtype)
    vector, lone = run(unit, name, kind, a, b)
    bound = BINARY[name][kind == "double"]
    exactly = name in ("nextafter", "fmod", "remainder", "floor_div", "trunc_div")
    if exactly:
        own = f32 if kind == "float" else f64
        if name == "trunc_div":
            with np.errstate(all="ignore"):
                want = np.trunc(a / b)
        else:
            want = scalar.apply(name, [a, b], own, own)
    else:
        want = scalar.apply(name, [doubles(a), doubles(b)], f64, f64)
    distance = ulps(vector, want, dtype)
    if name in ("minimum", "maximum", "fmin", "fmax"):
        distance = np.where((vector == 0) & (want == 0), 0, distance)  # which zero is nobody's promise
    worst = int(np.argmax(distance))
    assert distance[worst] <= bound, (name, a[worst], b[worst], vector[worst], want[worst])
    np.testing.assert_array_equal(vector, lone)


def test_fma_rounds_once(unit: ctypes.CDLL) -> None:
    x = np.float32(1) + np.arange(64, dtype=np.float32) * np.finfo(np.float32).eps
    out = np.zeros_like(x)
    call(unit, "fma_float", x, out, len(x))
    np.testing.assert_array_equal(out, (x.astype(np.float64) ** 2 - 1).astype(np.float32))
