"""Hand-built kernels of every conversion and every operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from triton_cases import I0, Case, Make, below, kernel, normal, special

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
from litz_ir.plan import Access, Store
from litz_ir.scalar import OPS, Expr
from litz_ir.scalar.build import cast, const, index, load, op, where

DTYPES = (f64, f32, bf16, f16, f8e4m3fn, f8e5m2, i64, i32, i16, i8, u64, u32, u16, u8, b1)


def conversions() -> Iterator[Case]:
    """Yield casts from every dtype to every other one, and bitcasts."""
    for source in DTYPES:
        targets = tuple(dtype for dtype in DTYPES if dtype != source)
        x = load("x", (I0,), source)
        values: Make = special if source.is_float and source.bits > 8 else normal
        if source.is_float:
            # A GPU promises nothing about floats that do not fit an integer.
            finite = where(op("lt", op("abs", x), const(100.0, source)), op("abs", x), const(0.0, source))
        else:
            values, finite = below(120, 0 if source.kind == "uint" or source.is_bool else -120), x
        yield Case(
            kernel(
                f"casts_from_{source}",
                [("x", source, "in"), *((f"o_{d}", d, "out") for d in targets)],
                [("i0", 200)],
                (
                    (),
                    [Store(f"o_{d}", I0, cast(finite if d.is_integer else x, d)) for d in targets],
                ),
            ),
            {"x": 200, **{f"o_{d}": 200 for d in targets}},
            {"x": values},
            rtol=1e-7,
            atol=0.0,
        )
    pairs = [
        (f32, i32),
        (i32, f32),
        (f64, i64),
        (bf16, i16),
        (i16, bf16),
        (f16, u16),
        (u8, i8),
        (f8e4m3fn, u8),
    ]
    yield Case(
        kernel(
            "bitcasts",
            [
                *((f"x{k}", a, "in") for k, (a, _) in enumerate(pairs)),
                *((f"o{k}", b, "out") for k, (_, b) in enumerate(pairs)),
            ],
            [("i0", 64)],
            (
                (),
                [
                    Store(f"o{k}", I0, op("bitcast", load(f"x{k}", (I0,), a), dtype=b))
                    for k, (a, b) in enumerate(pairs)
                ],
            ),
        ),
        {f"{buffer}{k}": 64 for buffer in "xo" for k in range(len(pairs))},
    )


def operations() -> Iterator[Case]:
    """Yield every operation over each dtype that it accepts, up to ten in a kernel."""
    for dtype in (f32, f64, bf16, f16, i64, i32, i8, u8, u32, b1):
        names = [
            name
            for name, row in OPS.items()
            if _accepted(name, dtype) and row.rule not in ("cast", "bitcast")
        ]
        for first in range(0, len(names), 10):
            yield _operations(f"{dtype}_{first // 10}", dtype, names[first : first + 10])
    yield Case(
        kernel(
            "digamma_near_its_pole",
            [("x", f64, "in"), ("o", f64, "out")],
            [("i0", 40)],
            ((), [Store("o", I0, op("digamma", load("x", (I0,), f64)))]),
        ),
        {"x": 40, "o": 40},
        {"x": lambda rng, count: -np.logspace(-12, -3, count)},
        rtol=1e-13,
        atol=0.0,
    )


def operations_with_constants() -> Iterator[Case]:
    """Yield every operation of several arguments with one of them a constant, which is a scalar among blocks."""
    for dtype in (f32, i64, u8):
        names = [
            name
            for name, row in OPS.items()
            if row.arity > 1 and _accepted(name, dtype) and row.rule not in ("random", "where")
        ]
        for position in (0, 1):
            yield _operations(f"{dtype}_with_constant_{position}", dtype, names, position)


def _accepted(name: str, dtype: DType) -> bool:
    row = OPS[name]
    if row.rule == "random":
        return (
            not dtype.is_bool
            if name == "random_bits" and dtype.is_integer
            else dtype.is_float and name != "random_bits"
        )
    accepted = {
        "any": True, "number": not dtype.is_bool, "float": dtype.is_float, "integer": dtype.is_integer,
        "bits": not dtype.is_float, "bool": dtype.is_bool,
    }  # fmt: skip
    return accepted[row.accepts]


_SLACK = {
    "digamma": 1e-4,
    "lgamma": 1e-4,
    "erfinv": 1e-5,
    "random_normal": 1e-5,
    "pow": 1e-5,
    "exp": 1e-5,
    "exp2": 1e-5,
}


def _operations(label: str, dtype: DType, names: Sequence[str], constant: int | None = None) -> Case:
    """Return a kernel of operations over a dtype, named by a label; the argument at position ``constant`` is one."""
    stores = []
    results: list[tuple[str, DType, Access]] = []
    for name in names:
        row = OPS[name]
        arguments: list[Expr] = [load(buffer, (I0,), dtype) for buffer in ("xyz" * 3)[: row.arity]]
        if constant is not None:
            arguments[constant] = const(5, dtype)
        if row.rule == "where":
            arguments = [
                op("lt", load("x", (I0,), dtype), load("z", (I0,), dtype)),
                arguments[0],
                arguments[1],
            ]
        if name in ("floor_div", "remainder", "trunc_div", "fmod") and dtype.is_integer:
            arguments[1] = op("maximum", arguments[1], const(1, dtype))
        if name == "pow" and dtype.is_integer:
            arguments[1] = op("remainder", arguments[1], const(7, dtype))
        if name == "three_term":
            arguments[0] = op("remainder", arguments[0], const(4, dtype))
        if name == "gamma_series":
            arguments[1] = op("minimum", arguments[1], const(20, dtype))
        if name == "gamma_fraction":
            above = op("maximum", arguments[0], const(1.0, dtype))
            arguments[1] = op("add", above, op("abs", arguments[1]))
        if row.rule == "random":
            arguments = [const(2**33 + 5, i64), index(I0)]
            value = op(name, *arguments, dtype=dtype)
        else:
            value = op(name, *arguments)
        stores.append(Store(f"o_{name}", I0, value))
        results.append((f"o_{name}", value.dtype, "out"))
    values: Make = (
        special if dtype.is_float else below(2 if dtype.is_bool else 100, 0 if dtype.kind != "int" else -100)
    )
    inputs: list[tuple[str, DType, Access]] = [(name, dtype, "in") for name in "xyz"]
    slack = max(_SLACK.get(name, 0.0) for name in names)
    precision = {f64: 1e-9, bf16: 1e-2, f16: 2e-3}.get(dtype, 3e-6)
    return Case(
        kernel(f"operations_{label}", [*inputs, *results], [("i0", 300)], ((), stores)),
        {name: 300 for name, _, _ in (*inputs, *results)},
        dict.fromkeys("xyz", values),
        rtol=max(precision, slack if dtype.bits < 64 else 1e-9),
        atol=max(precision, slack) / 10 if dtype.bits < 64 else 1e-9,
    )


def error_functions() -> Iterator[Case]:
    """Yield sums of 1 and an error function, in both orders and with the error function read too, of special values."""
    x = load("x", (I0,), f32)
    one, erf = const(1.0, f32), op("erf", x)
    halved = op("erf", op("mul", x, const(0.5, f32)))
    values = {
        "left": op("add", one, erf),
        "right": op("add", erf, one),
        "both": op("mul", op("add", halved, one), halved),
    }
    yield Case(
        kernel(
            "one_plus_erf",
            [("x", f32, "in"), *((name, f32, "out") for name in values)],
            [("i0", 300)],
            ((), [Store(name, I0, value) for name, value in values.items()]),
        ),
        {"x": 300, **dict.fromkeys(values, 300)},
        {"x": special},
        rtol=1e-6,
        atol=2e-7,
    )


def quotients() -> Iterator[Case]:
    """Yield quotients by constants, bit by bit: of all bf16 and f16 values, and of f32 values with any exponent."""
    every: Make = lambda rng, count: np.arange(count) - count // 2  # noqa: E731
    anything: Make = lambda rng, count: rng.integers(-(2**31), 2**31, count)  # noqa: E731
    for source, bits, count, fill, divisors in (
        (bf16, i16, 1 << 16, every, (3, 6, 9, 784, 8, 0.7)),
        (f16, i16, 1 << 16, every, (3, 12, 49, 65535, 0.5)),
        (f32, i32, 1 << 14, anything, (3, 9, 25, 12345, 2**-20, 6)),
    ):
        x = cast(op("bitcast", load("x", (I0,), bits), dtype=source), f32)
        stores = []
        for number, divisor in enumerate(divisors):
            quotient = op("div", x, const(float(divisor), f32))
            known = where(op("eq", quotient, quotient), quotient, const(0.0, f32))
            stores.append(Store(f"o{number}", I0, op("bitcast", known, dtype=i32)))
        outputs = {f"o{number}": count for number in range(len(divisors))}
        yield Case(
            kernel(
                f"quotients_of_{source}",
                [("x", bits, "in"), *((name, i32, "out") for name in outputs)],
                [("i0", count)],
                ((), stores),
            ),
            {"x": count, **outputs},
            {"x": fill},
        )
