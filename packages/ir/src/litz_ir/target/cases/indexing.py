"""Cases of indexing: strides, quotients, masks and indirect indices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from litz_ir.dtypes import f32, i32, i64
from litz_ir.plan.kernel import Store
from litz_ir.scalar.build import cast, checked, const, index, logical_and, masked, op
from litz_ir.scalar.expr import Indirect
from litz_ir.scalar.node import Expr
from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.term import Size
from litz_ir.target.cases.case import Case, at, axes, case, i, j, k, m, n, phase, pointwise, values

ROWS, COLUMNS = 37, 53


def indexing_cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _affine()
    yield from _quotients()
    yield from _masks()
    yield from _indirect()
    yield from _divisions()


def _plane(name: str, body: Expr, offset: Size, inner: str = "j") -> Case:
    """``o[offset] = body`` over rows ``i`` and columns ``j``."""
    return case(
        name,
        phase(Store("o", offset, body)),
        inputs={"x": (f32, values("x", f32, ROWS * COLUMNS)), "y": (f32, values("y", f32, ROWS + COLUMNS))},
        outputs={"o": (f32, ROWS * COLUMNS)},
        outer=axes(j=COLUMNS, i=ROWS) if inner == "i" else axes(i=ROWS, j=COLUMNS),
        vector=inner,
    )


def _affine() -> Iterator[Case]:
    dense = i * COLUMNS + j
    yield _plane("transpose", at("x", j * ROWS + i, f32), dense)
    yield _plane("transposed_store", at("x", dense, f32), j * ROWS + i)
    yield _plane("flip", at("x", dense * -1 + (ROWS * COLUMNS - 1), f32), dense)
    both = op("add", at("y", i, f32), at("y", j + ROWS, f32))
    yield _plane("broadcast_row_and_column", op("mul", both, at("x", dense, f32)), dense)
    yield _plane("vector_over_rows", op("neg", at("x", i + j * ROWS, f32)), i + j * ROWS, inner="i")
    yield pointwise(
        "every_other_element", {"x": (f32, values("x", f32, 500))}, at("x", i * 2 + 1, f32), count=249
    )
    yield case(
        "symbolic_rows_and_columns",
        phase(Store("o", i * m + j, op("add", at("x", j * n + i, f32), cast(index(n - i), f32)))),
        inputs={"x": (f32, values("x", f32, 19 * 21))},
        outputs={"o": (f32, 19 * 21)},
        outer=axes(i=n, j=m),
        symbols={"n": 19, "m": 21},
        vector="j",
    )


def _quotients() -> Iterator[Case]:
    inputs = {"x": (f32, values("x", f32, 120))}
    repeated = at("x", floordiv(i, 3), f32)
    tiled = at("x", mod(i, 7), f32)
    swapped = at("x", mod(i, 12) * 10 + floordiv(i, 12), f32)
    clamped = at("x", minimum(maximum(i - 5, 0), 99), f32)
    yield pointwise("quotients_and_remainders", inputs, repeated, tiled, swapped, clamped, count=120)
    yield pointwise("values_of_indices", {}, cast(index(i * 3 - 7), f32), index(mod(i, 5) - 2), count=301)
    by_symbol = at("x", mod(i, n) * floordiv(m, n) + floordiv(i, n), f32)
    yield pointwise("symbolic_quotients", inputs, by_symbol, count=120, size=m, symbols={"n": 8, "m": 120})


def _masks() -> Iterator[Case]:
    inputs = {"x": (f32, values("x", f32, 100)), "y": (f32, values("y", f32, 80))}
    inside = logical_and(op("ge", index(i), const(3, i64)), op("lt", index(i), const(103, i64)))
    padded = masked(inside, at("x", i - 3, f32), const(-1.0, f32))
    first = op("lt", index(i), const(100, i64))
    second = op("lt", index(i), const(180, i64))
    rest = masked(
        second, masked(op("bit_not", first), at("y", i - 100, f32), const(0.0, f32)), const(9.0, f32)
    )
    joined = op("add", masked(first, at("x", i, f32), const(0.0, f32)), rest)
    yield pointwise("pad_and_concatenate", inputs, padded, joined, count=199)
    positive = op("gt", at("z", i, f32), const(0.0, f32))
    thinned = masked(positive, op("sqrt", at("z", i, f32)), const(0.0, f32))
    yield pointwise("masks_by_value", {"z": (f32, values("z", f32, 333))}, thinned, count=333, ulp=1)


def _indirect() -> Iterator[Case]:
    table = values("table", f32, 40 * 9)
    for wrap, dtype in ((False, i64), (True, i64), (True, i32)):
        positions = values("positions", dtype, 31, -40 if wrap else 0, 40)
        row = Indirect(at("k", i, dtype), 40, wrap)
        yield case(
            f"gather_rows_{dtype}{'_wrapped' if wrap else ''}",
            phase(Store("o", i * 9 + j, at("x", row * 9 + j, f32))),
            inputs={"k": (dtype, positions), "x": (f32, table)},
            outputs={"o": (f32, 31 * 9)},
            outer=axes(i=31, j=9),
            vector="j",
        )
    wild = values("wild", i64, 200, -500, 500)
    clamped = Indirect(at("k", i, i64), 360, check="clamped")
    yield pointwise("gather_clamped", {"k": (i64, wild), "x": (f32, table)}, at("x", clamped, f32), count=200)
    raised = Indirect(at("k", i, i64), 360)
    allowed = logical_and(
        op("ge", at("k", i, i64), const(0, i64)), op("lt", at("k", i, i64), const(360, i64))
    )
    sparse = masked(allowed, at("x", raised, f32), const(0.0, f32))
    yield pointwise("gather_under_a_mask", {"k": (i64, wild), "x": (f32, table)}, sparse, count=200)
    twice = Indirect(at("k", Indirect(at("k", i, i64), 50, True), i64), 360, True)
    chain = values("chain", i64, 50, -50, 50)
    yield pointwise("gather_twice", {"k": (i64, chain), "x": (f32, table)}, at("x", twice, f32), count=50)
    outside = np.arange(100, dtype=np.int64)
    outside[77] = 360
    yield case(
        "gather_out_of_range",
        phase(Store("o", i, at("x", Indirect(at("k", i, i64), 360), f32))),
        inputs={"k": (i64, outside), "x": (f32, table)},
        outputs={"o": (f32, 100)},
        outer=axes(i=100),
        vector="i",
        fails=True,
    )
    by_column = at("x", Indirect(at("k", k, i64), 40) * 9 + j, f32)
    yield case(
        "gather_in_an_inner_loop",
        phase(Store("o", j * 31 + k, by_column), over=axes(k=31)),
        inputs={"k": (i64, values("positions", i64, 31, 0, 40)), "x": (f32, table)},
        outputs={"o": (f32, 31 * 9)},
        outer=axes(j=9),
        vector="k",
    )


def _divisions() -> Iterator[Case]:
    nought = np.ones(100, dtype=np.int64)
    nought[41] = 0
    divisor = at("d", i, i64)
    quotient = checked(
        op("ne", divisor, const(0, i64)), op("floor_div", at("n", i, i64), divisor), "zero_division"
    )
    numbers = values("numerators", i64, 100, -9, 9)
    for name, below, fails in (("division_by_zero", 100, True), ("division_by_zero_masked", 41, False)):
        guarded = quotient if fails else masked(op("lt", index(i), index(below)), quotient, const(0, i64))
        yield case(
            name,
            phase(Store("o", i, guarded)),
            inputs={"n": (i64, numbers), "d": (i64, nought)},
            outputs={"o": (i64, 100)},
            outer=axes(i=100),
            vector="i",
            fails=fails,
        )
