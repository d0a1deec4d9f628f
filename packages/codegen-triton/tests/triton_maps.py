"""Hand-built maps, gathers and scatters."""

from __future__ import annotations

from collections.abc import Iterator

from triton_cases import I0, I1, I2, R0, Case, below, kernel, special

from litz_ir.dtypes import DType, b1, bf16, f16, f32, f64, i8, i16, i32, i64, u8
from litz_ir.loops import ScatterMode
from litz_ir.plan import Store, TileRequest
from litz_ir.scalar import Expr, Indirect
from litz_ir.scalar.build import cast, const, index, load, masked, op
from litz_ir.symbols import mod


def maps() -> Iterator[Case]:
    """Yield maps: kernels without a reduction or scan."""
    for section in (_pointwise, _axes, _index_terms, _stores):
        yield from section()


def whole_rows() -> Iterator[Case]:
    """Yield a map with a tile of several whole rows that have values of their own, the last one with a single row."""
    flat = I0 * 128 + I1
    power = op("exp", op("sub", load("x", (flat,), f32), load("a", (I0,), f32)))
    yield Case(
        kernel(
            "whole_rows",
            [("x", f32, "in"), ("a", f32, "in"), ("o", f32, "out")],
            [("i0", 33), ("i1", 128)],
            ((), [Store("o", flat, op("mul", power, op("tanh", load("a", (I0,), f32))))]),
            schedule=TileRequest(blocks=(("i0", 8), ("i1", 128)), warps=4),
        ),
        {"x": 4224, "a": 33, "o": 4224},
        {"x": special},
    )


def _pointwise() -> Iterator[Case]:
    """Yield maps of several dtypes, whose low-precision results are rounded."""
    for count in (1, 7, 1000, 0):
        gelu = _gelu(load("x", (I0,), f32))
        yield Case(
            kernel(
                f"gelu_{count}",
                [("x", f32, "in"), ("o", f32, "out")],
                [("i0", count)],
                ((), [Store("o", I0, gelu)]),
            ),
            {"x": count, "o": count},
        )
    for dtype in (bf16, f16, f32):
        x, y = load("x", (I0,), dtype), load("y", (I0,), dtype)
        a, b = (cast(each, f32) for each in (x, y))
        made = [op("tanh", a), op("div", a, b), op("reciprocal", b), op("sigmoid", a)]
        rounded = [cast(each, dtype) for each in made]
        names = [f"o{k}" for k in range(len(made))]
        stores = [Store(name, I0, op("neg", cast(value, f32))) for name, value in zip(names, rounded)]
        yield Case(
            kernel(
                f"rounded_{dtype.name}",
                [("x", dtype, "in"), ("y", dtype, "in"), *((name, f32, "out") for name in names)],
                [("i0", 500)],
                ((), stores),
            ),
            {"x": 500, "y": 500, **dict.fromkeys(names, 500)},
            {"x": special, "y": special},
        )


def _axes() -> Iterator[Case]:
    """Yield maps with broadcasts, transposes, rows of an odd number of elements, no axes, and axes inside the phase."""
    flat = I0 * 2051 + I1
    shift = op("add", load("a", (I0,), f32), cast(load("k", (I0,), i64), f32))
    yield Case(
        kernel(
            "odd_rows",
            [("x", bf16, "in"), ("a", f32, "in"), ("k", i64, "in"), ("o", bf16, "out")],
            [("i0", 5), ("i1", 2051)],
            ((), [Store("o", flat, cast(op("add", cast(load("x", (flat,), bf16), f32), shift), bf16))]),
        ),
        {"x": 10255, "a": 5, "k": 5, "o": 10255},
        {"k": below(9)},
    )
    yield Case(
        kernel(
            "broadcast",
            [("x", f32, "in"), ("b", f32, "in"), ("o", f32, "out")],
            [("i0", 5), ("i1", 37)],
            (
                (),
                [Store("o", I0 * 37 + I1, op("add", load("x", (I0 * 37 + I1,), f32), load("b", (I1,), f32)))],
            ),
        ),
        {"x": 185, "b": 37, "o": 185},
    )
    # Axes of the phase instead of outer ones, as a scheduler may leave them.
    yield Case(
        kernel(
            "inner_map",
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 6)],
            ([("r0", 50)], [Store("o", I0 * 50 + R0, op("neg", load("x", (I0 * 50 + R0,), f32)))]),
        ),
        {"x": 300, "o": 300},
    )
    yield Case(
        kernel(
            "transpose",
            [("x", f32, "in"), ("y", f32, "in"), ("o", f32, "out")],
            [("i0", 40), ("i1", 70)],
            (
                (),
                [
                    Store(
                        "o",
                        I0 * 70 + I1,
                        op("add", load("x", (I1 * 40 + I0,), f32), load("y", (I0 * 70 + I1,), f32)),
                    )
                ],
            ),
        ),
        {"x": 2800, "y": 2800, "o": 2800},
    )
    yield Case(
        kernel(
            "transpose_3d",
            [("x", bf16, "in"), ("o", bf16, "out")],
            [("i0", 3), ("i1", 33), ("i2", 34)],
            ((), [Store("o", I0 * 1122 + I1 * 34 + I2, load("x", (I0 * 1122 + I2 * 33 + I1,), bf16))]),
        ),
        {"x": 3366, "o": 3366},
    )
    yield Case(
        kernel(
            "scheduled_2d",
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 20), ("i1", 19)],
            ((), [Store("o", I0 * 19 + I1, op("mul", load("x", (I0 * 19 + I1,), f32), const(3.0, f32)))]),
            schedule=TileRequest(blocks=(("i0", 8), ("i1", 16)), warps=2),
        ),
        {"x": 380, "o": 380},
    )
    yield Case(
        kernel(
            "zero_axes",
            [("x", f32, "in"), ("o", f32, "out")],
            [],
            ((), [Store("o", 0, op("exp", load("x", (0,), f32)))]),
        ),
        {"x": 1, "o": 1},
    )


def _index_terms() -> Iterator[Case]:
    """Yield maps whose loads have quotients, remainders and conditions."""
    yield Case(
        kernel(
            "reshape",
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 6), ("i1", 35)],
            (
                (),
                [
                    Store(
                        "o",
                        I0 * 35 + I1,
                        load("x", (((I0 * 35 + I1) // 14) * 20 + (I0 * 35 + I1) % 14,), f32),
                    )
                ],
            ),
        ),
        {"x": 400, "o": 210},
    )
    yield Case(
        kernel(
            "roll",
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 41)],
            ((), [Store("o", I0, load("x", (mod(I0 - 5, 41),), f32))]),
        ),
        {"x": 41, "o": 41},
    )
    yield _cat()
    yield _pad()
    row = masked(op("lt", index(I1), const(4, i64)), load("y", (I0,), f32), const(0.0, f32))
    yield Case(
        kernel(
            "value_of_a_row_in_its_first_columns",
            [("x", f32, "in"), ("y", f32, "in"), ("o", f32, "out")],
            [("i0", 5), ("i1", 9)],
            ((), [Store("o", I0 * 9 + I1, op("add", load("x", (I0 * 9 + I1,), f32), row))]),
        ),
        {"x": 45, "y": 5, "o": 45},
    )


def _stores() -> Iterator[Case]:
    """Yield maps with several stores: of constants, and in place."""
    yield Case(
        kernel(
            "constants",
            [("o", f32, "out"), ("p", i64, "out"), ("q", b1, "out"), ("r", f64, "out")],
            [("i0", 10)],
            (
                (),
                [
                    Store("o", I0, const(float("-inf"), f32)),
                    Store("p", I0, op("mul", index(I0), const(2**40, i64))),
                    Store("q", I0, op("lt", index(I0), const(4, i64))),
                    Store("r", I0, op("add", cast(index(I0), f64), const(0.1, f64))),
                ],
            ),
        ),
        {"o": 10, "p": 10, "q": 10, "r": 10},
    )
    yield Case(
        kernel(
            "in_place",
            [("x", f32, "inout"), ("o", f32, "out")],
            [("i0", 100)],
            (
                (),
                [
                    Store("x", I0, op("add", load("x", (I0,), f32), const(1.0, f32))),
                    Store("o", I0, op("mul", load("x", (I0,), f32), const(2.0, f32))),
                ],
            ),
        ),
        {"x": 100, "o": 100},
    )


def _gelu(x: Expr) -> Expr:
    scaled = op("mul", x, const(0.7071067811865476, f32))
    half = op("mul", x, const(0.5, f32))
    return op("mul", half, op("add", op("erf", scaled), const(1.0, f32)))


def _cat() -> Case:
    first = op("lt", index(I1), const(6, i64))
    body = masked(first, load("x", (I0 * 6 + I1,), f32), load("y", (I0 * 4 + I1 - 6,), f32))
    second = op("ge", index(I1), const(6, i64))
    body = masked(
        first,
        load("x", (I0 * 6 + I1,), f32),
        masked(second, load("y", (I0 * 4 + I1 - 6,), f32), const(0.0, f32)),
    )
    return Case(
        kernel(
            "cat",
            [("x", f32, "in"), ("y", f32, "in"), ("o", f32, "out")],
            [("i0", 9), ("i1", 10)],
            ((), [Store("o", I0 * 10 + I1, op("add", body, const(1.0, f32)))]),
        ),
        {"x": 54, "y": 36, "o": 90},
    )


def _pad() -> Case:
    inside = op("bit_and", op("ge", index(I0 - 3), const(0, i64)), op("lt", index(I0 - 3), const(20, i64)))
    body = masked(inside, load("x", (I0 - 3,), bf16), const(-1.0, bf16))
    return Case(
        kernel("pad", [("x", bf16, "in"), ("o", bf16, "out")], [("i0", 27)], ((), [Store("o", I0, body)])),
        {"x": 20, "o": 27},
    )


def indirect() -> Iterator[Case]:
    """Yield gathers and scatters."""
    at = Indirect(load("n", (I0,), i64), 50, True, "raised")
    yield Case(
        kernel(
            "gather",
            [("x", f32, "in"), ("n", i64, "in"), ("o", f32, "out")],
            [("i0", 12), ("i1", 9)],
            ((), [Store("o", I0 * 9 + I1, load("x", (at * 9 + I1,), f32))]),
        ),
        {"x": 450, "n": 12, "o": 108},
        {"n": below(50, -50)},
    )
    clamped = Indirect(load("n", (I0,), i32), 50, False, "clamped")
    yield Case(
        kernel(
            "gather_clamped",
            [("x", f32, "in"), ("n", i32, "in"), ("o", f32, "out")],
            [("i0", 30)],
            ((), [Store("o", I0, load("x", (clamped,), f32))]),
        ),
        {"x": 50, "n": 30, "o": 30},
        {"n": below(80, -20)},
    )
    # An index that is loaded under a condition may not be used outside it.
    wanted = op("lt", index(I0), const(10, i64))
    inner = Indirect(load("n", (I0,), i64), 50, False, "raised")
    yield Case(
        kernel(
            "gather_masked",
            [("x", f32, "in"), ("n", i64, "in"), ("o", f32, "out")],
            [("i0", 30)],
            ((), [Store("o", I0, masked(wanted, load("x", (inner,), f32), const(7.0, f32)))]),
        ),
        {"x": 50, "n": 10, "o": 30},
        {"n": below(50)},
    )
    for mode in SCATTER_MODES:
        for dtype in (f32, f64, bf16, f16, i64, i32, i16, i8, u8, b1):
            yield _scatter(mode, dtype)
    yield _scatter_columns()
    yield Case(
        kernel(
            "count_all",
            [("x", i32, "in"), ("o", i32, "inout")],
            [("i0", 10), ("i1", 30)],
            ((), [Store("o", 0, load("x", (I0 * 30 + I1,), i32), "add")]),
        ),
        {"x": 300, "o": 1},
        {"x": below(9), "o": below(3)},
    )


SCATTER_MODES: tuple[ScatterMode, ...] = ("add", "mul", "min", "max")


def _scatter(mode: ScatterMode, dtype: DType) -> Case:
    """Scatter small integers, whose results are exact in every dtype, so that the order of updates has no effect."""
    at = Indirect(load("n", (I0,), i64), 7, False, "raised")
    few = below(2) if dtype.is_bool else below(3, 1) if mode == "mul" else below(9)
    return Case(
        kernel(
            f"scatter_{mode}_{dtype}",
            [("x", dtype, "in"), ("n", i64, "in"), ("o", dtype, "inout")],
            [("i0", 40)],
            ((), [Store("o", at, load("x", (I0,), dtype), mode)]),
        ),
        {"x": 40, "n": 40, "o": 7},
        {"n": below(7), "x": few, "o": few},
    )


def _scatter_columns() -> Case:
    """Scatter into rows from a two-dimensional tile with a masked tail."""
    at = Indirect(load("n", (I0,), i64), 5, False, "raised")
    return Case(
        kernel(
            "scatter_rows_i8",
            [("x", i8, "in"), ("n", i64, "in"), ("o", i8, "inout")],
            [("i0", 9), ("i1", 13)],
            ((), [Store("o", at * 13 + I1, load("x", (I0 * 13 + I1,), i8), "max")]),
        ),
        {"x": 117, "n": 9, "o": 65},
        {"n": below(5), "x": below(100, -100), "o": below(9)},
    )
