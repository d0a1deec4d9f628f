"""Hand-built kernels with nested reductions and softmax-weighted sums, which are written as serial loops.

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
from triton_cases import I0, I1, R0, Case, kernel, main, normal, scalar
from triton_reductions import in_cluster
from triton_scheduled import requested

from litz_ir.dtypes import DType, bf16, f32, f64
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Accumulate, Store, TileRequest
from litz_ir.scalar import Expr, NestedReduction, cast, const, index, masked, op
from litz_ir.scalar.build import load
from litz_ir.symbols import Size, SymbolInfo, add, mul, symbol
from litz_ir.target.cases import all_cases

E0, E1, S0 = symbol("e0"), symbol("e1"), symbol("s0")


def cases() -> list[Case]:
    """Return every case."""
    return [*sums(), *rows_and_columns(), *softmax_sums()]


def squares(size: Size = 9, dtype: DType = f32) -> Expr:
    """Return the sum of the squares of a row of ``x``."""
    x = load("x", (add(mul(I0, size), E0),), dtype)
    return NestedReduction((("e0", size),), op("mul", x, x))


def sums() -> Iterator[Case]:
    """Yield nested reductions in maps, under conditions, of several axes, of size 0, in one another, in reductions."""
    for dtype in (f32, f64):
        made = op("add", squares(dtype=dtype), const(1.0, dtype))
        store = Store("o", I0 * 6 + I1, op("mul", made, load("y", (I1,), dtype)))
        buffers = [("x", dtype, "in"), ("y", dtype, "in"), ("o", dtype, "out")]
        yield Case(
            kernel(f"nested_{dtype}", buffers, [("i0", 7), ("i1", 6)], ((), [store])),
            {"x": 63, "y": 6, "o": 42},
        )
    inside = op("lt", index(I0), index(4))
    conditional = masked(inside, squares(), const(-1.0, f32))
    two = NestedReduction((("e0", 3), ("e1", 2)), cast(load("y", (I1 + E0 * 2 + E1,), bf16), f32))
    within = NestedReduction((("e1", 2),), op("mul", two_deep(), const(0.5, f32)))
    for name, value, count in (("masked", conditional, 36), ("two_axes", two, 36), ("twice", within, 63)):
        yield Case(
            kernel(
                f"nested_{name}",
                [("x", f32, "in"), ("y", bf16, "in"), ("o", f32, "out")],
                [("i0", 7), ("i1", 6)],
                ((), [Store("o", I0 * 6 + I1, value)]),
            ),
            {"x": count, "y": 16, "o": 42},
        )
    for size in (0, 5):
        made = kernel(
            f"nested_symbolic_{size}",
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
            "nested_least_distance",
            [("x", f32, "in"), ("y", f32, "in"), ("o", f32, "out")],
            [("i0", 7)],
            ([("r0", 11)], [Accumulate((("s", f32),), NamedCombiner("min"), (nearest,))]),
            ((), [Store("o", I0, scalar("s"))]),
        ),
        {"x": 63, "y": 99, "o": 7},
    )


def rows_and_columns() -> Iterator[Case]:
    """Yield sums over rows and columns of chunks of rows, in loops that load the next tile first, or have one tile, and
    in clusters that divide the rows into equal or unequal parts."""
    for dtype, block, part in (
        (f32, 2, 64),
        (bf16, 2, 64),
        (f32, 8, 64),
        (f32, 1, 8),
        (bf16, 1, 16),
        (f32, 1, 32),
    ):
        clusters = -(-40 // part)
        row = mul(add(mul(I0, 6), R0), 40)
        x, w = load("x", (add(row, I1),), dtype), cast(load("w", (I1,), f32), f32)
        x = cast(x, f32) if dtype != f32 else x
        own = (
            cast(load("x", (add(row, E0),), dtype), f32) if dtype != f32 else load("x", (add(row, E0),), f32)
        )
        total = NestedReduction((("e0", 40),), op("mul", own, load("w", (E0,), f32)))
        scale = load("s", (add(mul(I0, 6), R0),), f32)
        squares = NestedReduction((("e0", 40),), op("mul", own, own))
        element = op("add", op("mul", op("sub", op("mul", x, w), total), scale), squares)
        suffix = f"_in_cluster_of_{clusters}" if clusters > 1 else ""
        yield Case(
            kernel(
                f"rows_and_columns_{dtype}_{block}{suffix}",
                [
                    ("x", dtype, "in"),
                    ("w", f32, "in"),
                    ("s", f32, "in"),
                    ("o", f32, "out"),
                    ("c", f32, "out"),
                ],
                [("i0", 3), ("i1", 40)],
                (
                    [("r0", 6)],
                    [
                        Accumulate((("column", f32),), NamedCombiner("sum"), (op("mul", x, scale),)),
                        Store("o", add(row, I1), element),
                    ],
                ),
                ((), [Store("c", I0 * 40 + I1, scalar("column"))]),
                schedule=TileRequest(
                    blocks=(("i0", 1), ("i1", part), ("r0", block)), warps=1, row_cluster=clusters
                ),
            ),
            {"x": 720, "w": 40, "s": 18, "o": 720, "c": 120},
            atol=1e-5,
            rtol=1e-5,
        )


def two_deep() -> Expr:
    """Return a nested reduction over ``e0`` that depends on ``e1``."""
    return NestedReduction((("e0", 4),), load("x", (I0 * 9 + E0 * 2 + E1,), f32))


def hidden(rng: np.random.Generator, count: int) -> Any:
    """Return scores of which a third is minus infinity, and the first 40 as well."""
    values = normal(rng, count)
    values[rng.permutation(count)[: count // 3]] = -math.inf
    values[:40] = -math.inf
    return values


def softmax_sums() -> Iterator[Case]:
    """Yield ``softmax_sum`` of one point, a persistent tile, a loop of tiles, columns, f64, and a cluster."""
    yield softmax_sum("softmax_sum_of_one_point", 40, 1)
    yield softmax_sum("softmax_sum_persistent", 9, 40)
    yield softmax_sum("softmax_sum_in_f64", 9, 40, f64)
    tiles = TileRequest(blocks=(("i0", 2), ("r0", 16)), warps=1)
    yield softmax_sum("softmax_sum_in_tiles", 9, 40, schedule=tiles)
    yield softmax_sum("softmax_sum_of_columns", 9, 40, columns=True, schedule=tiles)
    yield softmax_sum("softmax_sum_of_nothing", 9, 0)
    yield in_cluster(softmax_sum("softmax_sum", 9, 40), 2)


def softmax_sum(
    name: str,
    rows: int,
    length: int,
    dtype: DType = f32,
    *,
    columns: bool = False,
    schedule: TileRequest | None = None,
) -> Case:
    """Return the kernel of all three results of a ``softmax_sum`` over rows, or over columns."""
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
    """Yield the cases of the conformance suite with nested reductions: a name, and the difference or ''."""
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
