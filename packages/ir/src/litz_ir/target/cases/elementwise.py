"""Cases of scalar operations, dtype by dtype, and of pointwise loops of several shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from litz_ir.dtypes import (
    ALL,
    DType,
    b1,
    bf16,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u32,
)
from litz_ir.interp.encoding import encode
from litz_ir.plan.kernel import Store
from litz_ir.scalar.build import cast, const, index, op, where
from litz_ir.scalar.expr import Scalar
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import symbol
from litz_ir.target.cases.case import Array, Case, at, axes, case, i, n, phase, pointwise, values

_TAIL = 1037
"""Number of points that is not a multiple of any register or tile."""

X, Y = at("x", i, f32), at("y", i, f32)
Inputs = dict[str, tuple[DType, Array]]


def elementwise_cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _shapes()
    yield from _arithmetic()
    yield from _functions()
    yield from _conversions()
    yield from _random()


def _inputs(dtype: DType, *names: str, count: int = _TAIL, low: float = -4, high: float = 4) -> Inputs:
    return {name: (dtype, values(name, dtype, count, low, high)) for name in names}


def _each(names: Sequence[str], *args: Expr) -> list[Expr]:
    return [op(name, *args) for name in names]


def _shapes() -> Iterator[Case]:
    yield pointwise("copy_with_tail", _inputs(f32, "x"), X, count=_TAIL)
    scaled = op("add", op("mul", Scalar("alpha", f32), X), Y)
    for count in (0, 1, 15, 64, 1000):
        inputs, symbols = _inputs(f32, "x", "y", count=count), {"alpha": 0.75, "n": count}
        yield pointwise(
            f"scale_and_add_{count}", inputs, scaled, count=count, size=n, symbols=symbols, ulp=16
        )
    yield case(
        "no_axes",
        phase(Store("o", 0, op("mul", at("x", 3, f32), const(2.0, f32)))),
        inputs=_inputs(f32, "x", count=5),
        outputs={"o": (f32, 1)},
    )
    a, b, c = symbol("a"), symbol("b"), symbol("c")
    offset = ((a * 3 + b) * 5 + c) * 7 + i
    yield case(
        "four_outer_axes",
        phase(Store("o", offset, op("add", at("x", offset, f32), cast(index(a + b * c), f32)))),
        inputs=_inputs(f32, "x", count=210),
        outputs={"o": (f32, 210)},
        outer=axes(a=2, b=3, c=5, i=7),
        vector="i",
    )


def _arithmetic() -> Iterator[Case]:
    for dtype in (f32, f64):
        x, y = at("x", i, dtype), at("y", i, dtype)
        bodies = _each(("add", "sub", "mul", "div"), x, y)
        exact = _each(("neg", "abs", "sign", "reciprocal", "sqrt"), x)
        inputs = {**_inputs(dtype, "x"), **_inputs(dtype, "y", low=1)}
        yield pointwise(f"arithmetic_{dtype}", inputs, *bodies, *exact, count=_TAIL, ulp=1)
        z = at("z", i, dtype)
        yield pointwise(f"fma_{dtype}", _inputs(dtype, "x", "y", "z"), op("fma", x, y, z), count=_TAIL)
        rounding = _each(("floor_div", "remainder", "fmod"), x, y)
        yield pointwise(f"float_remainders_{dtype}", inputs, *rounding, count=_TAIL, ulp=2)
    for dtype in (i8, i32, i64, u8):
        low, high = (0, 200) if dtype is u8 else (-120, 120)
        x, y = at("x", i, dtype), at("y", i, dtype)
        wrapping = _each(("add", "sub", "mul", "minimum", "maximum"), x, y) + _each(("neg", "abs", "sign"), x)
        inputs = _inputs(dtype, "x", "y", low=low, high=high)
        yield pointwise(f"arithmetic_{dtype}", inputs, *wrapping, count=_TAIL)
        divisors = {**_inputs(dtype, "x", low=low, high=high), **_inputs(dtype, "y", low=1, high=100)}
        divided = _each(("floor_div", "remainder", "trunc_div", "fmod", "gcd"), x, y)
        yield pointwise(f"integer_divisions_{dtype}", divisors, *divided, count=_TAIL)
        if dtype.kind == "int":
            negative = op("neg", y)
            yield pointwise(
                f"negative_divisors_{dtype}",
                divisors,
                *_each(("floor_div", "remainder", "trunc_div", "fmod"), x, negative),
                count=_TAIL,
            )
        bits = [*_each(("bit_and", "bit_or", "bit_xor"), x, y), op("bit_not", x)]
        by = cast(op("bit_and", at("z", i, u8), const(15, u8)), dtype)
        shifts = _each(("shift_left", "shift_right"), x, by)
        shifted = {**inputs, **_inputs(u8, "z", high=200, low=0)}
        yield pointwise(f"bits_{dtype}", shifted, *bits, *shifts, count=_TAIL)
    comparisons = _each(("eq", "ne", "lt", "le", "gt", "ge"), X, Y)
    coarse = {name: (f32, encode(np.rint(values(name, f32, _TAIL)), f32)) for name in "xy"}
    chosen = where(op("bit_and", op("lt", X, Y), op("bit_not", op("eq", X, const(1.0, f32)))), X, Y)
    yield pointwise("comparisons", coarse, *comparisons, chosen, count=_TAIL)


def _special(*names: str) -> Inputs:
    specials = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-30, 3e38, 7.0, -3.5], np.float32
    )
    first, second = (axis_values.reshape(-1) for axis_values in np.meshgrid(specials, specials))
    return {name: (f32, content) for name, content in zip(names, (first, second))}


def _functions() -> Iterator[Case]:
    pairs, single = _special("x", "y"), _special("x")
    count = len(single["x"][1])
    yield pointwise(
        "rounding_and_tests",
        single,
        *_each(("floor", "ceil", "trunc", "round", "sign", "isnan", "isinf", "signbit"), X),
        count=count,
    )
    extremes = _each(("minimum", "maximum", "fmin", "fmax"), X, Y)
    # Of 0.0 and -0.0 either is the smaller one.
    yield pointwise("extremes_of_special_values", pairs, *extremes, count=count, signed_zeros=False)
    yield pointwise("signs_and_neighbours", pairs, *_each(("copysign", "nextafter"), X, Y), count=count)
    exponentials = (
        "exp",
        "exp2",
        "expm1",
        "sigmoid",
        "sinh",
        "cosh",
        "tanh",
        "sin",
        "cos",
        "tan",
        "atan",
        "asinh",
    )
    logarithms = ("log", "log2", "log10", "log1p", "rsqrt", "sqrt", "reciprocal")
    bounded = ("asin", "acos", "atanh", "erf", "erfc", "erfinv")
    for dtype, ulp in ((f32, 4), (f64, 8)):
        x, y = at("x", i, dtype), at("y", i, dtype)
        wide, positive = _inputs(dtype, "x", low=-20, high=20), _inputs(dtype, "x", low=0.25, high=40)
        yield pointwise(f"exponentials_{dtype}", wide, *_each(exponentials, x), count=_TAIL, ulp=ulp)
        yield pointwise(f"logarithms_{dtype}", positive, *_each(logarithms, x), count=_TAIL, ulp=8)
        inside = _inputs(dtype, "x", low=-0.99, high=0.99)
        yield pointwise(f"bounded_arguments_{dtype}", inside, *_each(bounded, x), count=_TAIL, ulp=8)
        gamma = _each(("lgamma", "digamma"), x)  # both have roots among these arguments
        yield pointwise(f"gamma_{dtype}", positive, *gamma, count=_TAIL, ulp=64, relative_to_largest=True)
        sums = {**_inputs(dtype, "x", low=1.5, high=12), **_inputs(dtype, "y", low=0.25, high=30)}
        yield pointwise(f"zeta_{dtype}", sums, op("zeta", x, y), count=_TAIL, ulp=64)
        farther = op("gamma_fraction", x, op("add", x, y))
        gammas = (op("gamma_series", x, y), farther)
        yield pointwise(f"incomplete_gamma_{dtype}", sums, *gammas, count=_TAIL, ulp=64)
        degrees = {**_inputs(dtype, "x", low=-1, high=1), **_inputs(dtype, "y", low=-3, high=12)}
        zero, one = const(0.0, dtype), const(1.0, dtype)
        terms = (
            op("three_term", y, x, op("add", x, x), x, zero, one, one),
            op("three_term", y, x, zero, op("add", x, x), one, zero, zero),
        )
        yield pointwise(f"three_term_{dtype}", degrees, *terms, count=_TAIL, ulp=64, relative_to_largest=True)
        above = {"x": (dtype, encode(np.linspace(1, 60, _TAIL), dtype))}
        yield pointwise(f"acosh_{dtype}", above, op("acosh", x), count=_TAIL, ulp=8)
        both = {**_inputs(dtype, "x", low=0.1, high=6), **_inputs(dtype, "y", low=-3, high=3)}
        yield pointwise(
            f"two_arguments_{dtype}", both, *_each(("pow", "atan2", "hypot"), x, y), count=_TAIL, ulp=16
        )
    huge = {"x": (f32, np.array([-200, -104, -88, 88.5, 89, 500, np.inf, -np.inf, np.nan], np.float32))}
    saturating = _each(("exp", "sigmoid", "tanh", "expm1"), X)
    yield pointwise("saturating", huge, *saturating, count=len(huge["x"][1]), ulp=8)


def _conversions() -> Iterator[Case]:
    for source in (f32, f64, i32, i64, u8, b1):
        x = at("x", i, source)
        targets = [d for d in (f64, f32, i64, i32, i16, i8, u8, b1) if d != source]
        low = 0 if source.kind in ("uint", "bool") else -100
        inputs = _inputs(source, "x", low=low, high=100)
        bodies = [cast(x, d) for d in targets if d is not u8 or not source.is_float]
        yield pointwise(f"casts_from_{source}", inputs, *bodies, count=_TAIL)
    yield pointwise(
        "bitcasts",
        _inputs(f32, "x"),
        op("bitcast", X, dtype=i32),
        op("bitcast", op("bitcast", X, dtype=u32), dtype=f32),
        count=_TAIL,
    )
    for narrow in (dtype for dtype in ALL if dtype.is_low_precision):
        x, y = at("x", i, narrow), at("y", i, narrow)
        wide = op("mul", cast(x, f32), cast(y, f32))
        inputs = {**_inputs(narrow, "x", "y"), **_inputs(f32, "z", low=-300, high=300)}
        yield pointwise(
            f"rounding_to_{narrow}", inputs, cast(wide, narrow), cast(at("z", i, f32), narrow), count=_TAIL
        )
        literal = cast(const(1.3 * narrow.smallest, narrow), f32)
        yield pointwise(
            f"literal_of_{narrow}", _inputs(f32, "x"), op("add", X, literal), literal, count=_TAIL
        )
    for narrow in (bf16, f16):
        x, y = at("x", i, narrow), at("y", i, narrow)
        once = op("add", op("mul", x, y), const(1.0, narrow))
        yield pointwise(f"rounding_after_each_{narrow}", _inputs(narrow, "x", "y"), once, count=_TAIL)


def _random() -> Iterator[Case]:
    seed, counter = const(20240229, i64), index(i)
    yield pointwise(
        "random_numbers",
        {},
        op("random_uniform", seed, counter, dtype=f32),
        op("random_bits", seed, counter, dtype=i32),
        op("random_bits", seed, counter, dtype=i64),
        count=_TAIL,
    )
    yield pointwise("random_normal", {}, op("random_normal", seed, counter, dtype=f32), count=_TAIL, ulp=64)
