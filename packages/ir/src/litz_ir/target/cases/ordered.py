"""Cases that depend on the order of points: scans, combining stores, and overwritten inputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from litz_ir.dtypes import DType, f32, i32, i64
from litz_ir.loops.nodes import SORT, NamedCombiner, UserCombiner
from litz_ir.plan.kernel import ScanStore, Store
from litz_ir.scalar.build import const, index, op
from litz_ir.scalar.expr import Indirect, Param
from litz_ir.scalar.node import Expr
from litz_ir.target.cases.case import Array, Case, at, axes, case, i, j, n, phase, values

ROWS, COLUMNS = 11, 77
_OFFSET = i * COLUMNS + j
_X = at("x", _OFFSET, f32)


def ordered_cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _scans()
    yield from _scatters()
    half = op("mul", at("x", i, f32), const(0.5, f32))
    yield case(
        "over_its_input",
        phase(Store("x", i, op("add", half, at("y", i, f32)))),
        inputs={"x": (f32, values("x", f32, 700)), "y": (f32, values("y", f32, 700))},
        outputs={},
        outer=axes(i=n),
        inout=("x",),
        symbols={"n": 700},
        vector="i",
        ulp=4,
    )
    yield case(
        "part_of_a_buffer",
        phase(Store("x", i * 3 + 50, at("y", i, f32))),
        inputs={"x": (f32, values("x", f32, 400)), "y": (f32, values("y", f32, 100))},
        outputs={},
        outer=axes(i=100),
        inout=("x",),
        vector="i",
    )


def _scan(name: str, statement: ScanStore, *results: DType, ulp: int = 0, along_rows: bool = True) -> Case:
    """Scans along rows for every outer point, or of all rows in one phase, restarted at each row."""
    return case(
        name,
        phase(statement, over=axes(j=COLUMNS) if along_rows else axes(i=ROWS, j=COLUMNS)),
        inputs={"x": (f32, values("x", f32, ROWS * COLUMNS))},
        outputs={f"o{number}": (dtype, ROWS * COLUMNS) for number, dtype in enumerate(results)},
        outer=axes(i=ROWS) if along_rows else (),
        ulp=ulp,
        relative_to_largest=True,
    )


def _scans() -> Iterator[Case]:
    sums = ScanStore(NamedCombiner("sum"), (_X,), (("o0", _OFFSET),))
    yield _scan("running_sum", sums, f32, ulp=256)
    yield _scan("running_sum_restarts", sums, f32, ulp=256, along_rows=False)
    yield _scan("running_max", ScanStore(NamedCombiner("max"), (_X,), (("o0", _OFFSET),)), f32)
    positions = ScanStore(NamedCombiner("argmin"), (_X, index(j)), (("o0", _OFFSET), ("o1", _OFFSET)))
    yield _scan("running_argmin", positions, f32, i64)
    ordered = ScanStore(SORT, (at("k", _OFFSET, i64),), (("o0", _OFFSET),))
    for name, rows in (("sorted_rows", True), ("sorted_rows_one_after_another", False)):
        yield case(
            name,
            phase(ordered, over=axes(j=COLUMNS) if rows else axes(i=ROWS, j=COLUMNS)),
            inputs={"k": (i64, values("k", i64, ROWS * COLUMNS, -(1 << 40), 1 << 40))},
            outputs={"o0": (i64, ROWS * COLUMNS)},
            outer=axes(i=ROWS) if rows else (),
        )
    narrow = ScanStore(SORT, (at("k", j * ROWS + i, i32),), (("o0", j * ROWS + i),))
    yield case(
        "sorted_columns",
        phase(narrow, over=axes(j=COLUMNS)),
        inputs={"k": (i32, values("narrow", i32, ROWS * COLUMNS, -9, 9))},
        outputs={"o0": (i32, ROWS * COLUMNS)},
        outer=axes(i=ROWS),
    )
    # x[j] + decay * (the previous result): associative over pairs (decay, value).
    a, b, c, d = (Param(number, f32) for number in range(4))
    decay = UserCombiner(
        (op("mul", a, c), op("add", op("mul", b, c), d)), (const(1.0, f32), const(0.0, f32)), (b,)
    )
    smoothed = ScanStore(decay, (const(0.9, f32), _X), (("o0", _OFFSET),))
    yield _scan("running_average", smoothed, f32, ulp=256)


def _scatter(name: str, dtype: DType, store: Store, positions: Array, content: Array, ulp: int = 0) -> Case:
    return case(
        name,
        phase(store),
        inputs={
            "k": (i64, positions),
            "x": (dtype, content),
            "o": (dtype, values("start", dtype, 40)),
        },
        outputs={},
        outer=axes(i=len(positions)),
        inout=("o",),
        parallel=False,
        ulp=ulp,
        relative_to_largest=True,
    )


def _scatters() -> Iterator[Case]:
    row = Indirect(at("k", i, i64), 40, True)
    distinct = np.random.default_rng(7).permutation(40).astype(np.int64)[:33]
    crowded = values("crowded", i64, 200, -40, 40)
    x: Expr = at("x", i, f32)
    yield _scatter("scatter_set", f32, Store("o", row, x), distinct, values("x", f32, 33))
    yield _scatter("scatter_add", f32, Store("o", row, x, "add"), crowded, values("x", f32, 200), ulp=64)
    for mode in ("min", "max"):
        store = Store("o", row, x, mode)
        yield _scatter(f"scatter_{mode}", f32, store, crowded, values("x", f32, 200))
    near_one = values("ones", f32, 200, 0.8, 1.2)
    yield _scatter("scatter_mul", f32, Store("o", row, x, "mul"), crowded, near_one, ulp=64)
    whole = at("x", i, i64)
    yield _scatter(
        "scatter_add_i64", i64, Store("o", row, whole, "add"), crowded, values("x", i64, 200, -9, 9)
    )
