"""The vector maths against exact values, for each instruction set, in vector and scalar form."""

from __future__ import annotations

import ctypes
from typing import Any

import mpmath  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest
from cpp_units import Array, build_unit, call, runnable, ulps

from litz_ir.dtypes import f32, f64
from litz_ir.interp import scalar

INF, NAN = np.inf, np.nan

# The largest distance from the exact value, in units of the last place, for float and for double.
UNARY = {
    "exp": (1.5, 1.5), "exp2": (1.5, 1.5), "expm1": (1.6, 2.5), "sigmoid": (2, 2), "tanh": (2, 2.5),
    "log": (1.5, 1.5), "log2": (1.8, 2), "log10": (1.8, 2), "log1p": (1.5, 1.5),
    "sin": (1.6, 2), "cos": (1.6, 2), "tan": (3, 1),
    "asin": (2, 1), "acos": (2, 1), "atan": (2, 1),
    "sinh": (2, 2), "cosh": (2, 2), "asinh": (2, 2), "acosh": (2, 2), "atanh": (2.5, 2),
    "erf": (1.5, 1), "erfc": (3, 3), "erfinv": (4, 8), "lgamma": (1, 4), "digamma": (1, 64),
    "sqrt": (0.5, 0.5), "rsqrt": (1.5, 1.5), "reciprocal": (0.5, 0.5),
    "floor": (0, 0), "ceil": (0, 0), "trunc": (0, 0), "round": (0, 0), "abs": (0, 0), "neg": (0, 0), "sign": (0, 0),
}  # fmt: skip
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
def unit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    rows = [f"UNARY({name}, {kind})" for name in UNARY for kind in FLOATS]
    rows += [f"BINARY({name}, {kind})" for name in BINARY for kind in FLOATS]
    return build_unit(UNIT + "\n".join(rows), request.param, tmp_path_factory.mktemp("math"))


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


def exact(name: str, x: Array) -> Array:
    """The value of a unary function at doubles, as extended precision numbers rounded from 40 digits."""
    functions = {
        "sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)),
        "exp2": lambda v: mpmath.mpf(2) ** v,
        "log2": lambda v: mpmath.log(v) / mpmath.log(2),
        "erfinv": mpmath.erfinv,
        "digamma": mpmath.digamma,
        "lgamma": lambda v: mpmath.re(mpmath.loggamma(v)),
    }
    function = functions.get(name) or getattr(mpmath, name)
    with mpmath.workdps(40):
        return np.array([np.longdouble(mpmath.nstr(function(mpmath.mpf(float(v))), 25)) for v in x])


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


@pytest.mark.parametrize("name", UNARY)
def test_float_function_is_within_its_bound(unit: ctypes.CDLL, name: str) -> None:
    x = sample(np.float32, 3000)
    vector, lone = run(unit, name, "float", x)
    want = scalar.apply(name, [doubles(x)], f64, f64)
    if name == "sigmoid":
        want[doubles(x) < -np.log(np.finfo(np.float32).max)] = 0  # as eager: 1 / (1 + exp(-x)) in float
    distance = ulps(vector, want, np.float32)
    worst = int(np.argmax(distance))
    assert distance[worst] <= UNARY[name][0], (name, x[worst], vector[worst], want[worst])
    np.testing.assert_array_equal(vector, lone)


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


EXACT = {
    "exp": (-700, 700), "exp2": (-1000, 1000), "expm1": (-30, 700), "sigmoid": (-40, 40), "tanh": (-20, 20),
    "log": (0, 1e9), "log2": (0, 1e9), "log10": (0, 1e9), "log1p": (-1, 100), "sin": (-1e6, 1e6), "cos": (-1e6, 1e6),
    "tan": (-100, 100), "asin": (-1, 1), "acos": (-1, 1), "atan": (-50, 50), "sinh": (-30, 30), "cosh": (-30, 30),
    "asinh": (-1e3, 1e3), "acosh": (1, 1e3), "atanh": (-1, 1), "erf": (-5, 5), "erfc": (-5, 20), "erfinv": (-1, 1),
    "lgamma": (3, 1e3), "digamma": (2, 1e3),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_double_function_is_within_its_bound(unit: ctypes.CDLL, name: str) -> None:
    x = np.random.default_rng(11).uniform(*EXACT[name], 60)
    vector, _ = run(unit, name, "double", x)
    distance = ulps(vector, exact(name, x), np.float64)
    worst = int(np.argmax(distance))
    assert distance[worst] <= UNARY[name][1], (name, x[worst], vector[worst])


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
