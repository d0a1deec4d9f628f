"""Loads, stores, casts, integers, reductions and random numbers of the headers, for each instruction set."""

from __future__ import annotations

import ctypes
import mmap
from itertools import product

import numpy as np
import pytest
from cpp_units import Array, build_unit, call, runnable

from litz_ir import dtypes
from litz_ir.dtypes import b1, bf16, f16, f32, f64
from litz_ir.interp import philox, scalar
from litz_ir.interp.encoding import decode, encode, round_to, storage_dtype

INF, NAN = np.inf, np.nan
MEMORY = {
    "double": f64, "float": f32, "bf16": bf16, "f16": f16, "b1": b1,
    "f8e4m3fn": dtypes.f8e4m3fn, "f8e5m2": dtypes.f8e5m2,
    "f8e4m3fnuz": dtypes.f8e4m3fnuz, "f8e5m2fnuz": dtypes.f8e5m2fnuz,
    "int64_t": dtypes.i64, "int32_t": dtypes.i32, "int16_t": dtypes.i16, "int8_t": dtypes.i8,
    "uint64_t": dtypes.u64, "uint32_t": dtypes.u32, "uint16_t": dtypes.u16, "uint8_t": dtypes.u8,
}  # fmt: skip
INTEGERS = [kind for kind, dtype in MEMORY.items() if dtype.is_integer]
DIVIDED = ["int64_t", "int32_t", "int8_t", "uint64_t", "uint8_t"]
MOVED = ["double", "float", "bf16", "f16", "f8e4m3fn", "f8e5m2fnuz", "b1", "int64_t", "int16_t", "uint8_t"]
FLOATS = [kind for kind, dtype in MEMORY.items() if dtype.is_float]
NUMBERS = [*INTEGERS, "float", "double"]
CASTS = [
    *product(["float", "double", "int64_t", "uint64_t", "int8_t"], NUMBERS),
    *product(["int32_t", "uint32_t", "uint8_t"], ["float", "double", "int16_t"]),
]
INTEGER_BINARY = (
    "floor_div", "remainder", "trunc_div", "fmod", "shift_left", "shift_right", "pow", "minimum", "maximum",
)  # fmt: skip
INTEGER_UNARY = ("abs", "neg", "sign")

UNIT = """
#include <litz/float8.h>
#include <litz/index.h>
#include <litz/math_divide.h>
#include <litz/math_power.h>
#include <litz/memory.h>
#include <litz/philox.h>
#include <litz/reduce.h>
using namespace litz;
extern "C" int64_t lanes() { return LITZ_LANES; }
#define MEMORY(T)                                                                                              \\
  extern "C" void copy_##T(const T* x, T* y) { store(y, load(x)); }                                            \\
  extern "C" void partial_##T(const T* x, T* y, int64_t n) { store_partial(y, n, load_partial(x, n)); }        \\
  extern "C" void masked_##T(const T* x, T* y, const b1* m) {                                                  \\
    store_masked(y, load(m), load_masked(x, load(m)));                                                         \\
  }                                                                                                            \\
  extern "C" void strided_##T(const T* x, T* y, int64_t from, int64_t to) {                                    \\
    store_strided(y, to, load_strided(x, from));                                                               \\
  }                                                                                                            \\
  extern "C" void strided_partial_##T(const T* x, T* y, int64_t from, int64_t to, int64_t n) {                 \\
    store_strided_partial(y, to, n, load_strided_partial(x, from, n));                                         \\
  }                                                                                                            \\
  extern "C" void gather_##T(const T* x, T* y, const int64_t* i) { store(y, gather(x, load(i))); }             \\
  extern "C" void gather_narrow_##T(const T* x, T* y, const int64_t* i) {                                      \\
    store(y, gather(x, convert<int32_t>(load(i))));                                                            \\
  }                                                                                                            \\
  extern "C" void gather_masked_##T(const T* x, T* y, const int64_t* i, const b1* m) {                         \\
    store(y, gather_masked(x, load(i), load(m)));                                                              \\
  }                                                                                                            \\
  extern "C" void scatter_##T(const T* x, T* y, const int64_t* i) { scatter(y, load(i), load(x)); }            \\
  extern "C" void scatter_partial_##T(const T* x, T* y, const int64_t* i, int64_t n) {                         \\
    scatter_partial(y, load_partial(i, n), n, load_partial(x, n));                                             \\
  }                                                                                                            \\
  extern "C" void scalar_##T(const T* x, T* y) { store_scalar(y, load_scalar(x)); }
#define NARROW(T)                                                                                              \
  extern "C" void narrow_##T(const float* x, uint16_t* y, uint16_t* z, float* back, int64_t n) {               \
    for (int64_t i = 0; i < n; i += LITZ_LANES) {                                                              \
      store(y + i, narrow_##T(load(x + i)));                                                                   \
      store(back + i, round_##T(load(x + i)));                                                                 \
    }                                                                                                          \
    for (int64_t i = 0; i < n; ++i) z[i] = narrow_##T(x[i]);                                                   \
  }
NARROW(bf16)
NARROW(f16)
extern "C" void pairs(const float* x, bf16* y, float* back, float* read, int64_t n) {
  for (int64_t i = 0; i < n; i += 2 * LITZ_LANES) {
    const vec<float> lo = load(x + i), hi = load(x + i + LITZ_LANES);
    store_pair(y + i, lo, hi);
    const wide<vec<float>> rounded = round_bf16_pair(lo, hi), loaded = load_pair(y + i);
    store(back + i, rounded.lo);
    store(back + i + LITZ_LANES, rounded.hi);
    store(read + i, loaded.lo);
    store(read + i + LITZ_LANES, loaded.hi);
  }
}
extern "C" void divided(const float* x, const float* d, float* y, int64_t n) {
  const divisor<float> by(*d);
  for (int64_t i = 0; i < n; i += LITZ_LANES) store(y + i, load(x + i) / by);
}
#define CAST(S, T)                                                                                             \\
  extern "C" void cast_##S##_##T(const S* x, T* y, T* z, int64_t n) {                                          \\
    for (int64_t i = 0; i < n; i += LITZ_LANES) store_partial(y + i, n - i, convert<T>(load_partial(x + i, n - i))); \\
    for (int64_t i = 0; i < n; ++i) z[i] = convert<T>(x[i]);                                                   \\
  }
#define BINARY(name, T)                                                                                        \\
  extern "C" void name##_##T(const T* a, const T* b, T* y, T* z, int64_t n) {                                  \\
    for (int64_t i = 0; i < n; i += LITZ_LANES)                                                                \\
      store_partial(y + i, n - i, name(load_partial(a + i, n - i), load_partial(b + i, n - i)));               \\
    for (int64_t i = 0; i < n; ++i) z[i] = name(a[i], b[i]);                                                   \\
  }
#define UNARY(name, T)                                                                                         \\
  extern "C" void name##_##T(const T* a, T* y, T* z, int64_t n) {                                              \\
    for (int64_t i = 0; i < n; i += LITZ_LANES) store_partial(y + i, n - i, name(load_partial(a + i, n - i))); \\
    for (int64_t i = 0; i < n; ++i) z[i] = name(a[i]);                                                         \\
  }
#define REDUCE(T)                                                                                              \\
  extern "C" void reduce_##T(const T* x, T* y) {                                                               \\
    vec<T> v = load(x);                                                                                        \\
    y[0] = sum_lanes(v), y[1] = prod_lanes(v), y[2] = min_lanes(v), y[3] = max_lanes(v);                       \\
  }                                                                                                            \\
  extern "C" void choose_##T(const T* x, T* y, b1* below) {                                                    \\
    vec<T> a = load(x), b = iota<T>(T(3));                                                                     \\
    store(y, select(lt(a, b), a, b));                                                                          \\
    store(below, lt(a, b));                                                                                    \\
    store(y + LITZ_LANES, from_mask<T>(to_mask(a)));                                                           \\
    y[2 * LITZ_LANES] = select(lt(x[0], T(3)), x[0], T(3));                                                    \\
  }
#define RANDOM(T)                                                                                              \\
  extern "C" void random_##T(int64_t seed, int64_t from, T* u, T* w, int64_t n) {                              \\
    for (int64_t i = 0; i < n; i += LITZ_LANES) {                                                              \\
      vec<int64_t> s = broadcast(seed), c = iota<int64_t>(from + i);                                           \\
      store_partial(u + i, n - i, random_uniform<T>(s, c));                                                    \\
      store_partial(w + i, n - i, random_normal<T>(s, c));                                                     \\
    }                                                                                                          \\
    store_scalar(u, random_uniform<T>(seed, from));                                                            \\
    store_scalar(w, random_normal<T>(seed, from));                                                             \\
  }
#define BITS(T)                                                                                                \\
  extern "C" void bits_##T(int64_t seed, int64_t from, T* y, int64_t n) {                                      \\
    for (int64_t i = 0; i < n; i += LITZ_LANES)                                                                \\
      store_partial(y + i, n - i, random_bits<T>(broadcast(seed), iota<int64_t>(from + i)));                   \\
    store_scalar(y, random_bits<T>(seed, from));                                                               \\
  }
extern "C" void indices(const int64_t* x, int64_t size, int64_t* wrapped, int64_t* clamped, b1* inside) {
  vec<int64_t> i = load(x);
  store(wrapped, wrap_index(i, size));
  store(clamped, clamp_index(i, size));
  store(inside, in_range(i, size));
}
extern "C" void masks(const b1* x, int64_t* y) {
  mask m = load(x);
  y[0] = any_lanes(m), y[1] = all_lanes(m), y[2] = mask_bits(m), y[3] = mask_bits(first_lanes(3));
  y[4] = all_lanes(broadcast_mask(true)), y[5] = any_lanes(broadcast_mask(false));
}
"""


@pytest.fixture(
    scope="module", params=[*product(runnable(), [1]), (runnable()[0], 2)], ids=lambda p: f"{p[0]}x{p[1]}"
)
def unit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Twice the lanes of the best set make every vector of two halves."""
    rows = [f"MEMORY({kind})" for kind in MOVED] + [f"REDUCE({kind})" for kind in NUMBERS]
    rows += [f"CAST({a}, {b})" for a, b in CASTS]
    rows += [f"BINARY({name}, {kind})" for name in INTEGER_BINARY for kind in DIVIDED]
    rows += [f"UNARY({name}, {kind})" for name in INTEGER_UNARY for kind in DIVIDED]
    rows += [f"RANDOM({kind})" for kind in FLOATS]
    rows += [f"BITS({kind})" for kind in (*DIVIDED, "b1")]
    name, widen = request.param
    return build_unit(
        UNIT + "\n".join(rows), name, tmp_path_factory.mktemp("memory"), widen=widen, quick=True
    )


@pytest.fixture
def lanes(unit: ctypes.CDLL) -> int:
    unit.lanes.restype = ctypes.c_int64
    return int(unit.lanes())


def numbers(kind: str, count: int, seed: int = 5) -> Array:
    """Elements as they lie in memory, NaN patterns of the narrow floats left out."""
    dtype = MEMORY[kind]
    draw = np.random.default_rng(seed)
    if dtype.is_bool:
        return draw.integers(0, 2, count).astype(bool)
    if dtype.is_float:
        return encode(round_to(draw.normal(size=count) * 100, dtype), dtype)
    info = np.iinfo(storage_dtype(dtype))
    values = draw.integers(info.min, info.max, count, dtype=storage_dtype(dtype), endpoint=True)
    small = draw.integers(0, 9, count).astype(storage_dtype(dtype))
    return np.where(draw.integers(0, 2, count) == 1, values, small)


class GuardedPage:
    """A page of memory before one that nobody may touch: an access past the end stops the process."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        second = ctypes.c_void_p(self._bytes.ctypes.data + mmap.PAGESIZE)
        if libc.mprotect(second, ctypes.c_size_t(mmap.PAGESIZE), 0) != 0:
            pytest.skip("this system protects no pages")

    def tail(self, like: Array) -> Array:
        """A copy of ``like`` that ends where the page does."""
        view = self._bytes[mmap.PAGESIZE - like.nbytes : mmap.PAGESIZE].view(like.dtype)
        view[:] = like
        return view


@pytest.mark.parametrize("kind", MOVED)
def test_whole_vectors_copy(unit: ctypes.CDLL, lanes: int, kind: str) -> None:
    x = numbers(kind, lanes)
    y = np.zeros_like(x)
    call(unit, f"copy_{kind}", x, y)
    np.testing.assert_array_equal(x, y)
    z = np.zeros_like(x)
    call(unit, f"scalar_{kind}", x, z)
    assert z[0] == x[0] and not z[1:].any()


@pytest.mark.parametrize("kind", MOVED)
def test_partial_moves_touch_nothing_past_the_end(unit: ctypes.CDLL, lanes: int, kind: str) -> None:
    source, target = GuardedPage(), GuardedPage()
    for n in range(lanes + 1):
        x = source.tail(numbers(kind, n))
        y = target.tail(np.zeros(n, x.dtype))
        call(unit, f"partial_{kind}", x, y, n)
        np.testing.assert_array_equal(x, y)
        before = np.zeros(lanes + 4, x.dtype)
        call(unit, f"partial_{kind}", np.resize(x, lanes) if n else np.zeros(lanes, x.dtype), before, n)
        assert not before[n:].any()


@pytest.mark.parametrize("kind", MOVED)
def test_masked_moves_touch_chosen_lanes_alone(unit: ctypes.CDLL, lanes: int, kind: str) -> None:
    page = GuardedPage()
    x = page.tail(numbers(kind, lanes - 1))
    chosen = np.arange(lanes) % 3 == 1
    chosen[-1] = False
    y = np.zeros(lanes, x.dtype)
    call(unit, f"masked_{kind}", x, y, chosen)
    np.testing.assert_array_equal(y[:-1], np.where(chosen[:-1], x, np.zeros_like(x)))


@pytest.mark.parametrize("kind", MOVED)
@pytest.mark.parametrize(("step", "to"), [(3, 2), (0, 1), (-2, 3)])
def test_strided_moves(unit: ctypes.CDLL, lanes: int, kind: str, step: int, to: int) -> None:
    x = numbers(kind, 3 * lanes)
    first = 2 * lanes if step < 0 else 0
    picked = x[first + step * np.arange(lanes)]
    y = np.zeros(to * lanes, x.dtype)
    call(unit, f"strided_{kind}", x[first:], y, step, to)
    np.testing.assert_array_equal(y[::to], picked)
    assert to == 1 or not y[1::to].any()
    n = lanes // 2 + 1
    z = np.zeros(to * lanes, x.dtype)
    call(unit, f"strided_partial_{kind}", x[first:], z, step, to, n)
    np.testing.assert_array_equal(z[::to][:n], picked[:n])
    assert not z[::to][n:].any()


@pytest.mark.parametrize("kind", MOVED)
def test_gathers_and_scatters(unit: ctypes.CDLL, lanes: int, kind: str) -> None:
    x = numbers(kind, 50)
    at = np.random.default_rng(2).permutation(50)[:lanes].astype(np.int64)
    for name in ("gather", "gather_narrow"):
        y = np.zeros(lanes, x.dtype)
        call(unit, f"{name}_{kind}", x, y, at)
        np.testing.assert_array_equal(y, x[at])
    chosen = np.arange(lanes) % 2 == 0
    wild = np.where(chosen, at, 1 << 40)
    y = np.ones(lanes, x.dtype)
    call(unit, f"gather_masked_{kind}", x, y, wild, chosen)
    np.testing.assert_array_equal(y, np.where(chosen, x[at], np.zeros_like(y)))
    z = np.zeros(50, x.dtype)
    call(unit, f"scatter_{kind}", x, z, at)
    np.testing.assert_array_equal(z[at], x[:lanes])
    n = lanes - 1
    z = np.zeros(50, x.dtype)
    call(unit, f"scatter_partial_{kind}", x, z, at, n)
    np.testing.assert_array_equal(z[at], np.where(np.arange(lanes) < n, x[:lanes], np.zeros_like(y)))


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_narrow_floats_round_to_nearest_even(unit: ctypes.CDLL, lanes: int, kind: str) -> None:
    dtype = MEMORY[kind]
    codes = np.arange(1 << 16, dtype=np.uint16)
    stored = codes if dtype is bf16 else codes.view(np.float16)
    values = decode(stored, dtype)
    draw = np.random.default_rng(1)
    patterns = draw.integers(0, 2**32, 4096, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        middles = (values[:-1].astype(np.float64) + values[1:]) / 2
        x = np.concatenate([values, patterns, middles.astype(np.float32)])
    x = np.resize(x, -(-len(x) // lanes) * lanes)
    narrow = np.zeros(len(x), np.uint16)
    lone = np.zeros(len(x), np.uint16)
    wide = np.zeros_like(x)
    call(unit, f"narrow_{kind}", x, narrow, lone, wide, len(x))
    want = encode(x, dtype).view(np.uint16)
    nan = np.isnan(x)
    np.testing.assert_array_equal(narrow[~nan], want[~nan])
    np.testing.assert_array_equal(narrow, lone)
    assert np.isnan(decode(narrow if dtype is bf16 else narrow.view(np.float16), dtype)[nan]).all()
    back = decode(narrow if dtype is bf16 else narrow.view(np.float16), dtype)
    np.testing.assert_array_equal(wide, back)


def test_two_registers_round_as_one_does(unit: ctypes.CDLL, lanes: int) -> None:
    draw = np.random.default_rng(2)
    patterns = draw.integers(0, 2**32, 64 * lanes, dtype=np.uint32).view(np.float32)
    normal = draw.standard_normal(64 * lanes).astype(np.float32)
    denormal = draw.integers(0, 2**23, 64 * lanes, dtype=np.uint32).view(np.float32)
    specials = np.resize(np.array([0, -0.0, NAN, INF, -INF, 1e-40, -1e-45, 3.4e38], np.float32), 64 * lanes)
    sparse = np.where(np.arange(64 * lanes) % 64 == 5, denormal, normal)
    x = np.concatenate([patterns, normal, denormal, specials, sparse, np.maximum(normal, 0)])
    narrow, lone = np.zeros(len(x), np.uint16), np.zeros(len(x), np.uint16)
    back, wide, read = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    call(unit, "pairs", x, narrow, back, read, len(x))
    call(unit, "narrow_bf16", x, np.zeros_like(narrow), lone, wide, len(x))
    nan = np.isnan(x)
    np.testing.assert_array_equal(narrow[~nan], lone[~nan])
    assert np.isnan(decode(narrow, bf16)[nan]).all()
    np.testing.assert_array_equal(back.view(np.uint32)[~nan], wide.view(np.uint32)[~nan])
    assert np.isnan(back[nan]).all()
    np.testing.assert_array_equal(read, decode(narrow, bf16))


def test_many_values_divided_by_one(unit: ctypes.CDLL, lanes: int) -> None:
    draw = np.random.default_rng(3)
    patterns = draw.integers(0, 2**32, 1 << 14, dtype=np.uint32).view(np.float32)
    ones = (1 + draw.integers(0, 2**23, 1 << 14) * 2.0**-23).astype(np.float32)
    specials = np.resize(
        np.array([0, -0.0, NAN, INF, -INF, 1e-40, -1e-45, 3.4e38, 1, -1], np.float32), 16 * lanes
    )
    x = np.concatenate([patterns, ones, specials])
    divisors = [*draw.integers(0, 2**32, 300, dtype=np.uint32).view(np.float32), *ones[:100],
                *np.array([0, -0.0, NAN, INF, -INF, 1e-40, 1e-30, 1e30, 1e-31, 1e31, 3, -7], np.float32),
                np.float32(2 - 2**-23)]  # fmt: skip
    for d in divisors:
        y = np.zeros_like(x)
        call(unit, "divided", x, np.array([d], np.float32), y, len(x))
        with np.errstate(all="ignore"):
            want = x / np.float32(d)
        usual = ~(np.abs(x) < 2.0**-100) & ~(np.abs(want) > 2.0**127)
        np.testing.assert_array_equal(y[usual], want[usual])
        np.testing.assert_array_equal(np.signbit(y[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))
        away = np.abs(y.view(np.int32).astype(np.int64) - want.view(np.int32))
        assert away[~np.isnan(want)].max(initial=0) <= 1, d


@pytest.mark.parametrize(("source", "target"), CASTS)
def test_casts_are_those_of_the_operation_table(unit: ctypes.CDLL, source: str, target: str) -> None:
    a, b = MEMORY[source], MEMORY[target]
    x = numbers(source, 301)
    if a.is_float:
        edges = [0, -0.0, 0.9, -0.9, 127.5, 128, 255.9, 256, -129, 32768, 65536.5, 2147483520, 2147483648, 3e9 + 512,
                 -2147483648, -3e9, 2.0**32, 9.2e18, 9.3e18, -9.3e18, 1.9e19, 1e30, -1e30, INF, -INF, NAN]  # fmt: skip
        x = np.concatenate([x, np.array(edges).astype(x.dtype)])
    vector, lone = np.zeros(len(x), storage_dtype(b)), np.zeros(len(x), storage_dtype(b))
    call(unit, f"cast_{source}_{target}", x, vector, lone, len(x))
    want = scalar.apply("cast", [x], a, b)
    np.testing.assert_array_equal(vector, want)
    np.testing.assert_array_equal(lone, want)


@pytest.mark.parametrize("kind", DIVIDED)
@pytest.mark.parametrize("name", INTEGER_BINARY)
def test_integers_follow_the_operation_table(unit: ctypes.CDLL, name: str, kind: str) -> None:
    dtype = MEMORY[kind]
    a, b = numbers(kind, 400, 1), numbers(kind, 400, 2)
    info = np.iinfo(a.dtype)
    corners = np.array([0, 1, 2, 7, info.max, info.min, *((-1, -2) if dtype.is_signed else ())], a.dtype)
    grid = np.meshgrid(corners, corners)
    a, b = np.concatenate([a, grid[0].ravel()]), np.concatenate([b, grid[1].ravel()])
    vector, lone = np.zeros_like(a), np.zeros_like(a)
    call(unit, f"{name}_{kind}", a, b, vector, lone, len(a))
    with np.errstate(all="ignore"):
        want = scalar.apply(name, [a, b], dtype, dtype)
    np.testing.assert_array_equal(vector, want)
    np.testing.assert_array_equal(lone, want)


@pytest.mark.parametrize("kind", DIVIDED)
@pytest.mark.parametrize("name", INTEGER_UNARY)
def test_signs_of_integers(unit: ctypes.CDLL, name: str, kind: str) -> None:
    dtype = MEMORY[kind]
    a = np.concatenate(
        [numbers(kind, 100), np.array([0, np.iinfo(storage_dtype(dtype)).min], storage_dtype(dtype))]
    )
    vector, lone = np.zeros_like(a), np.zeros_like(a)
    call(unit, f"{name}_{kind}", a, vector, lone, len(a))
    want = scalar.apply(name, [a], dtype, dtype)
    np.testing.assert_array_equal(vector, want)
    np.testing.assert_array_equal(lone, want)


@pytest.mark.parametrize("kind", NUMBERS)
def test_lanes_reduce_to_one(unit: ctypes.CDLL, lanes: int, kind: str) -> None:
    x = numbers(kind, lanes)
    y = np.zeros(4, x.dtype)
    call(unit, f"reduce_{kind}", x, y)
    with np.errstate(all="ignore"):
        want = [x.sum(dtype=x.dtype), x.prod(dtype=x.dtype), x.min(), x.max()]
    np.testing.assert_allclose(y, want, rtol=1e-4 if kind == "float" else 1e-12 if kind == "double" else 0)
    if MEMORY[kind].is_float:
        x[lanes // 2] = np.nan
        call(unit, f"reduce_{kind}", x, y)
        assert np.isnan(y).all()


@pytest.mark.parametrize("kind", NUMBERS)
def test_choices_by_mask(unit: ctypes.CDLL, lanes: int, kind: str) -> None:
    x = numbers(kind, lanes)
    y, below = np.zeros(2 * lanes + 1, x.dtype), np.zeros(lanes, bool)
    call(unit, f"choose_{kind}", x, y, below)
    other = (3 + np.arange(lanes)).astype(x.dtype)
    np.testing.assert_array_equal(y[:lanes], np.minimum(x, other))
    np.testing.assert_array_equal(below, x < other)
    np.testing.assert_array_equal(y[lanes : 2 * lanes], (x != 0).astype(x.dtype))
    assert y[-1] == min(x[0], 3)


def test_masks_answer_for_all_lanes(unit: ctypes.CDLL, lanes: int) -> None:
    for chosen in (np.zeros(lanes, bool), np.ones(lanes, bool), np.arange(lanes) % 3 == 0):
        y = np.zeros(6, np.int64)
        call(unit, "masks", chosen, y)
        bits = sum(1 << i for i in range(lanes) if chosen[i])
        assert y.tolist() == [chosen.any(), chosen.all(), bits, 7, 1, 0]


def test_indices_wrap_and_are_clamped(unit: ctypes.CDLL, lanes: int) -> None:
    x = np.resize(np.array([-6, -5, -1, 0, 4, 5, 1 << 40, -(1 << 40)]), lanes).astype(np.int64)
    wrapped, clamped, inside = np.zeros_like(x), np.zeros_like(x), np.zeros(lanes, bool)
    call(unit, "indices", x, 5, wrapped, clamped, inside)
    np.testing.assert_array_equal(wrapped, np.where(x < 0, x + 5, x))
    np.testing.assert_array_equal(clamped, np.clip(x, 0, 4))
    np.testing.assert_array_equal(inside, (x >= 0) & (x < 5))


@pytest.mark.parametrize("seed", [0, 1234567890123, -5])
@pytest.mark.parametrize("kind", FLOATS)
def test_random_floats_are_those_of_the_interpreter(unit: ctypes.CDLL, kind: str, seed: int) -> None:
    dtype, n, start = MEMORY[kind], 777, (1 << 33) - 100
    counter = start + np.arange(n)
    uniform, normal = np.zeros(n, storage_dtype(dtype)), np.zeros(n, storage_dtype(dtype))
    call(unit, f"random_{kind}", seed, start, uniform, normal, n)
    want = philox.random_uniform(np.array(seed), counter, dtype)
    np.testing.assert_array_equal(decode(uniform, dtype).astype(np.float64), want)
    expected = philox.random_normal(np.array(seed), counter, dtype)
    error = np.abs(decode(normal, dtype).astype(np.float64) - expected)
    unit_size = 2.0 ** -min(dtype.mantissa, 50)
    assert (error <= 3 * unit_size * np.maximum(np.abs(expected), 0.25)).all()


@pytest.mark.parametrize("kind", [*DIVIDED, "b1"])
def test_random_bits_are_those_of_the_interpreter(unit: ctypes.CDLL, kind: str) -> None:
    dtype, n = MEMORY[kind], 50
    y = np.zeros(n, storage_dtype(dtype))
    call(unit, f"bits_{kind}", 42, 9, y, n)
    np.testing.assert_array_equal(y, philox.random_bits(np.array(42), 9 + np.arange(n), dtype))
