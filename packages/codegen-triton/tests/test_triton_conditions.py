"""Masks of loads: those that another point makes needless are left out."""

from __future__ import annotations

import pytest
from triton_cases import I0, I1, kernel
from triton_scheduled import emitted

from litz_codegen_triton.emit.indexing.conditions import is_met_elsewhere
from litz_ir.dtypes import bf16, f32, i64
from litz_ir.plan import Store
from litz_ir.scalar import Expr
from litz_ir.scalar.build import cast, const, index, load, masked, op
from litz_ir.symbols import Range, Size, floordiv, mod, symbol

X = symbol("x")
RANGES = {"x": Range(0, 479), "y": Range(2, 9), "n": Range(0, 8)}


def below(place: Size, limit: Size) -> Expr:
    return op("lt", index(place), index(limit))


@pytest.mark.parametrize(
    ("condition", "offset", "others", "found"),
    [
        (below(symbol("y"), 5), X * 3, [], True),
        (below(symbol("y"), 5), X * 3, [below(symbol("y"), symbol("x"))], False),
        (below(symbol("y"), 5), X + symbol("y"), [], False),
        (below(symbol("y"), 2), X, [], False),
        (below(symbol("y"), symbol("n")), X, [], False),
        (below(mod(X, 48), 45), floordiv(X, 48), [], True),
        (below(mod(X, 48), 45), floordiv(X, 96) * 7 + 1, [], True),
        (below(mod(X, 48), 45), 0, [], True),
        (below(mod(X, 48), 45), floordiv(X, 24), [], False),
        (below(mod(X, 48), 45), X - floordiv(X, 48) * 3, [], False),
        (below(mod(X, 48), 45), floordiv(X + 5, 48), [], False),
        (below(X + 1, 45), 0, [], False),
        (op("ge", index(X), const(45, i64)), 0, [], False),
    ],
)
def test_bounds_of_an_index_that_the_load_does_not_have_are_met_elsewhere(
    condition: Expr, offset: Size, others: list[Expr], found: bool
) -> None:
    assert is_met_elsewhere(condition, offset, others, RANGES) is found


@pytest.mark.parametrize(
    ("rows", "masked_by_place"),
    [(None, {"x", "column"}), (7, {"x", "row", "column", "scalar"})],
    ids=["columns", "rows_and_columns"],
)
def test_padded_rows_mask_what_their_columns_have(rows: int | None, masked_by_place: set[str]) -> None:
    sum_ = op("add", load("x", (I0 * 45 + I1,), f32), load("row", (I0,), f32))
    value = op("mul", sum_, op("add", load("column", (I1,), f32), load("scalar", (0,), f32)))
    for place, limit in ((I0, rows), (I1, 45)):
        if limit is not None:
            value = masked(below(place, limit), value, const(0.0, f32))
    names = ("x", "row", "column", "scalar")
    made = kernel(
        "padded",
        [*((name, f32, "in") for name in names), ("o", bf16, "out")],
        [("i0", 10), ("i1", 48)],
        ((), [Store("o", I0 * 48 + I1, cast(value, bf16))]),
    )
    lines = [line for line in emitted(made).text.splitlines() if "tl.load(" in line]
    found = {name for name in names for line in lines if f"{name}_ptr" in line and "mask=mask" in line}
    assert len(lines) == len(names) and found == masked_by_place
