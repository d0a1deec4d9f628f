"""Sums inside of bodies and sums weighed by a softmax, as data: what becomes of them one after the other.

``TRITON_INTERPRET=1 python triton_nested_reductions.py`` runs them as ``triton_corpus`` runs its own, and after them
those of the conformance suite.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import triton_candidates
from triton_corpus import I0, I1, R0, Case, kernel, load, main, normal, op, scalar, shared_by
from triton_scheduled import requested

from litz_ir.dtypes import DType, bf16, f32, f64
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Accumulate, Store, TileRequest
from litz_ir.scalar import Expr, NestedReduction, cast, const, index, masked
from litz_ir.symbols import Size, SymbolInfo, add, mul, symbol
from litz_ir.target.cases import all_cases

E0, E1, S0 = symbol("e0"), symbol("e1"), symbol("s0")


def cases() -> list[Case]:
    """Every case."""
    return [*sums(), *weighed()]


def squares(size: Size = 9, dtype: DType = f32) -> Expr:
    """The sum of the squares of a row of ``x``."""
    x = load("x", (add(mul(I0, size), E0),), dtype)
    return NestedReduction((("e0", size),), op("mul", x, x))


def sums() -> Iterator[Case]:
    """Folds in maps, under conditions, over several axes, over no point, in one another, in reductions."""
    for dtype in (f32, f64):
        made = op("add", squares(dtype=dtype), const(1.0, dtype))
        store = Store("o", I0 * 6 + I1, op("mul", made, load("y", (I1,), dtype)))
        buffers = [("x", dtype, "in"), ("y", dtype, "in"), ("o", dtype, "out")]
        yield Case(
            kernel(f"fold_{dtype}", buffers, [("i0", 7), ("i1", 6)], ((), [store])),
            {"x": 63, "y": 6, "o": 42},
        )
    inside = op("lt", index(I0), index(4))
    part = masked(inside, squares(), const(-1.0, f32))
    two = NestedReduction((("e0", 3), ("e1", 2)), cast(load("y", (I1 + E0 * 2 + E1,), bf16), f32))
    within = NestedReduction((("e1", 2),), op("mul", two_deep(), const(0.5, f32)))
    for name, value, count in (("masked", part, 36), ("two_axes", two, 36), ("nested", within, 63)):
        yield Case(
            kernel(
                f"fold_{name}",
                [("x", f32, "in"), ("y", bf16, "in"), ("o", f32, "out")],
                [("i0", 7), ("i1", 6)],
                ((), [Store("o", I0 * 6 + I1, value)]),
            ),
            {"x": count, "y": 16, "o": 42},
        )
    for size in (0, 5):
        made = kernel(
            f"fold_open_{size}",
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 7)],
            ((), [Store("o", I0, op("add", squares(S0), load("x", (0,), f32)))]),
            symbols=[SymbolInfo("s0", low=0, hint=40)],
        )
        yield Case(made, {"x": max(1, 7 * size), "o": 7}, symbols={"s0": size})
    distance = op("sub", load("x", (I0 * 9 + E0,), f32), load("y", (R0 * 9 + E0,), f32))
    nearest = NestedReduction((("e0", 9),), op("mul", distance, distance))
    yield Case(
        kernel(
            "fold_least_distance",
            [("x", f32, "in"), ("y", f32, "in"), ("o", f32, "out")],
            [("i0", 7)],
            ([("r0", 11)], [Accumulate((("s", f32),), NamedCombiner("min"), (nearest,))]),
            ((), [Store("o", I0, scalar("s"))]),
        ),
        {"x": 63, "y": 99, "o": 7},
    )


def two_deep() -> Expr:
    """A fold over ``e0`` of what ``e1`` chooses."""
    return NestedReduction((("e0", 4),), load("x", (I0 * 9 + E0 * 2 + E1,), f32))


def hidden(rng: np.random.Generator, count: int) -> Any:
    """Scores of which many are minus infinity, those of the first 40 all."""
    values = normal(rng, count)
    values[rng.permutation(count)[: count // 3]] = -math.inf
    values[:40] = -math.inf
    return values


def weighed() -> Iterator[Case]:
    """``softmax_sum`` at a point, of a row at once, piece by piece, of columns, in ``f64``, by several programs."""
    yield weighing("softmax_sum_at_a_point", 40, 1)
    yield weighing("softmax_sum_at_once", 9, 40)
    yield weighing("softmax_sum_in_f64", 9, 40, f64)
    pieces = TileRequest(blocks=(("i0", 2), ("r0", 16)), warps=1)
    yield weighing("softmax_sum_in_pieces", 9, 40, schedule=pieces)
    yield weighing("softmax_sum_of_columns", 9, 40, columns=True, schedule=pieces)
    yield weighing("softmax_sum_of_nothing", 9, 0)
    yield shared_by(weighing("softmax_sum", 9, 40), 2)


def weighing(
    name: str,
    rows: int,
    length: int,
    dtype: DType = f32,
    *,
    columns: bool = False,
    schedule: TileRequest | None = None,
) -> Case:
    """All three results of so many rows."""
    at = R0 * rows + I0 if columns else I0 * length + R0
    results = (("top", dtype), ("total", dtype), ("weighted", dtype))
    values = (load("x", (at,), dtype), load("y", (R0,), dtype))
    made = kernel(
        name,
        [("x", dtype, "in"), ("y", dtype, "in"), *((result, dtype, "out") for result, _ in results)],
        [("i0", rows)],
        ([("r0", length)], [Accumulate(results, NamedCombiner("softmax_sum"), values)]),
        ((), [Store(result, I0, scalar(result, dtype)) for result, _ in results]),
        schedule=schedule,
    )
    sizes = {"x": rows * length, "y": length, **{result: rows for result, _ in results}}
    return Case(made, sizes, {"x": hidden})


def suite() -> Iterator[tuple[str, str]]:
    """The cases of the conformance suite: a name, and what differs."""
    with tempfile.TemporaryDirectory() as folder:
        for case in all_cases():
            if case.nested_reductions:
                difference = triton_candidates.of_the_suite(case)
                made = requested(case.kernel)
                yield case.name, triton_candidates.compared(made, difference, Path(folder))


if __name__ == "__main__":
    main(cases(), sys.argv[1:])
    for case_name, found in suite():
        print(json.dumps({"case": f"suite: {case_name}", "difference": found}), flush=True)
