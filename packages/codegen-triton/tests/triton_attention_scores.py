"""Chains without a right factor as data: gradients of what a score function looks up, by rows, by columns, by points.

``TRITON_INTERPRET=1 python triton_attention_scores.py`` runs them as ``triton_corpus`` runs its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace

from triton_corpus import Case, Make, kernel, load, main, op, scalar
from triton_fused_attention import LISTS, Change, Heads, J, M, N, T, case, causal, gradient, inputs, plain

from litz_ir.dtypes import DType, f16, f32, i32
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Access, Accumulate, Kernel, Store
from litz_ir.scalar import Expr, Indirect, cast, const, index, masked, substitute_expr
from litz_ir.symbols import Size, SymbolInfo, add, floordiv, mul, substitute, symbol

NOTHING = const(-0.0, f32)
DISTANCES = 400
"""The places of a table: 200 is that of a query and a key at the same place."""


def given(heads: Heads) -> list[tuple[str, DType, Access]]:
    return inputs(heads, "q", "k", "v", "do", "lse", "delta")


def seen(value: Expr, key: Size, change: Change, nothing: Expr) -> Expr:
    """The value where a causal mask lets a query see a key."""
    return value if change is plain else op("where", op("ge", index(M), index(key)), value, nothing)


def rows(name: str, heads: Heads, change: Change = plain) -> Kernel:
    """For each query, the sum over the keys."""
    value = seen(gradient(heads, N, change), N, change, const(0.0, f32))
    return kernel(
        name,
        [*given(heads), ("rows", f32, "out")],
        [*heads.outer, ("m", heads.rows)],
        ([("n", heads.keys)], [Accumulate((("s", f32),), NamedCombiner("sum"), (value,))]),
        ((), [Store("rows", heads.row(), scalar("s"))]),
    )


def columns(name: str, heads: Heads, change: Change = plain) -> Kernel:
    """For each key, the sum over the queries of all heads that share it."""
    value = seen(gradient(heads, N, change), N, change, const(0.0, f32))
    group = [("g", heads.group)] if heads.group > 1 else []
    return kernel(
        name,
        [*given(heads), ("columns", f32, "out")],
        [("b", heads.batch), ("n", heads.keys)],
        ([*group, ("m", heads.rows)], [Accumulate((("s", f32),), NamedCombiner("sum"), (value,))]),
        ((), [Store("columns", heads.key(N), scalar("s"))]),
    )


def distances(
    name: str, heads: Heads, change: Change = plain, symbols: tuple[SymbolInfo, ...] = ()
) -> Kernel:
    """For each distance, the sum over the queries and keys that are so far apart."""
    value = seen(gradient(heads, N, change), N, change, NOTHING)
    return kernel(
        name,
        [*given(heads), ("table", f32, "inout")],
        [],
        (
            [*heads.outer, ("m", heads.rows), ("n", heads.keys)],
            [Store("table", add(M, mul(N, -1), DISTANCES // 2), value, "add")],
        ),
        symbols=symbols,
    )


def points(name: str, heads: Heads, change: Change = plain) -> Kernel:
    """The gradient of every score."""
    value = seen(gradient(heads, N, change), N, change, NOTHING)
    return kernel(
        name,
        [*given(heads), ("points", f32, "out")],
        [*heads.outer, ("m", heads.rows), ("n", heads.keys)],
        ((), [Store("points", add(mul(heads.row(), heads.keys), N), value)]),
    )


def listed_distances(name: str, heads: Heads, block: int, keys: int, change: Change = plain) -> Kernel:
    """Distances where a block of queries sees the blocks of keys that are listed for it."""
    assert isinstance(heads.keys, int)
    blocks = -(-heads.keys // keys)
    own = floordiv(M, block)
    inside = op("lt", index(J), cast(load("count", (own,), i32), index(J).dtype))
    chosen = load("listed", (own * blocks + J,), i32)

    def key(which: Expr) -> Size:
        return add(mul(Indirect(which, blocks, False, "assumed"), keys), T)

    (store,) = distances(name, heads, change).phases[0].statements
    assert isinstance(store, Store)
    value = masked(inside, substitute_expr(store.value, {"n": key(chosen)}), NOTHING)
    place = substitute(store.offset, {"n": key(masked(inside, chosen, const(0, i32)))})
    return kernel(
        name,
        [*given(heads), ("count", i32, "in"), ("listed", i32, "in"), ("table", f32, "inout")],
        [],
        (
            [*heads.outer, ("m", heads.rows), ("j", blocks), ("t", keys)],
            [replace(store, value=value, offset=place)],
        ),
    )


def sized(made: Kernel, heads: Heads, symbols: Mapping[str, int] | None = None) -> Case:
    """A kernel over heads as a case."""
    counts = symbols or {}

    def count(size: Size) -> int:
        return size if isinstance(size, int) else counts[str(size)]

    batch, queries, keys = count(heads.batch), count(heads.rows) * heads.group, count(heads.keys)
    more = {
        "rows": batch * queries, "columns": batch * keys, "points": batch * queries * keys, "table": DISTANCES,
    }  # fmt: skip
    fill: Mapping[str, Make] = LISTS if any(each.name == "listed" for each in made.parameters) else {}
    return case(made, heads, symbols, fill, more)


def cases() -> Iterator[Case]:
    """Every case: sizes around those of tiles, dtypes, groups, masks, lists, sizes that are not known."""
    for number, heads in enumerate(
        (Heads(), Heads(rows=64, keys=64, depth=64, width=64), Heads(rows=1, keys=41), Heads(group=2),
         Heads(rows=32, group=3, dtype=f32), Heads(rows=48, keys=130, depth=20, width=40, dtype=f16))
    ):  # fmt: skip
        # A sum of one is none.
        for make in (rows, distances, points, *((columns,) if heads.rows != 1 else ())):
            change = causal if number % 2 == 0 else plain
            yield sized(make(f"lone_{make.__name__}_{number}", heads, change), heads)
    even, uneven = Heads(rows=96, keys=96), Heads(rows=70, keys=96)
    for number, heads in enumerate((even, uneven, replace(even, group=2))):
        yield sized(listed_distances(f"lone_listed_{number}", heads, 32, 32, causal), heads)
    heads = Heads(batch=symbol("s0"), rows=symbol("s1"), keys=symbol("s2"))
    infos = tuple(SymbolInfo(name, low=0, hint=40) for name in ("s0", "s1", "s2"))
    yield sized(distances("lone_open", heads, symbols=infos), heads, {"s0": 2, "s1": 23, "s2": 37})


if __name__ == "__main__":
    main(list(cases()), sys.argv[1:])
