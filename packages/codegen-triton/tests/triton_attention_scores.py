"""Hand-built attention kernels without V: gradients of tensors that a score_mod reads, by query, key or distance.

``TRITON_INTERPRET=1 python triton_attention_scores.py`` runs them as ``triton_corpus`` runs its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace

from triton_cases import Case, Make, kernel, main, scalar
from triton_fused_attention import LISTS, Change, Heads, J, M, N, T, case, causal, gradient, inputs, plain

from litz_ir.dtypes import DType, f16, f32, i32
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Access, Accumulate, Kernel, Store
from litz_ir.scalar import Expr, Indirect, cast, const, index, masked, op, substitute_expr
from litz_ir.scalar.build import load
from litz_ir.symbols import Size, SymbolInfo, add, floordiv, mul, substitute, symbol

NOTHING = const(-0.0, f32)
"""The value that an addition leaves out: adding it changes no number."""

DISTANCES = 400
"""The size of a table of biases by distance; 200 is the entry of distance 0."""


def inputs_of(heads: Heads) -> list[tuple[str, DType, Access]]:
    """Return the input buffers of a backward kernel."""
    return inputs(heads, "q", "k", "v", "do", "lse", "delta")


def unmasked(value: Expr, key: Size, change: Change, nothing: Expr) -> Expr:
    """Return the value, or ``nothing`` where a causal mask hides the key."""
    return value if change is plain else op("where", op("ge", index(M), index(key)), value, nothing)


def rows(name: str, heads: Heads, change: Change = plain) -> Kernel:
    """Return the kernel that sums dS over the keys, for each query."""
    value = unmasked(gradient(heads, N, change), N, change, const(0.0, f32))
    return kernel(
        name,
        [*inputs_of(heads), ("rows", f32, "out")],
        [*heads.outer, ("m", heads.rows)],
        ([("n", heads.keys)], [Accumulate((("s", f32),), NamedCombiner("sum"), (value,))]),
        ((), [Store("rows", heads.row(), scalar("s"))]),
    )


def columns(name: str, heads: Heads, change: Change = plain) -> Kernel:
    """Return the kernel that sums dS over the queries of a group, for each key."""
    value = unmasked(gradient(heads, N, change), N, change, const(0.0, f32))
    group = [("g", heads.group)] if heads.group > 1 else []
    return kernel(
        name,
        [*inputs_of(heads), ("columns", f32, "out")],
        [("b", heads.batch), ("n", heads.keys)],
        ([*group, ("m", heads.rows)], [Accumulate((("s", f32),), NamedCombiner("sum"), (value,))]),
        ((), [Store("columns", heads.key(N), scalar("s"))]),
    )


def distances(
    name: str, heads: Heads, change: Change = plain, symbols: tuple[SymbolInfo, ...] = ()
) -> Kernel:
    """Return the kernel that adds up dS by the distance of query and key."""
    value = unmasked(gradient(heads, N, change), N, change, NOTHING)
    return kernel(
        name,
        [*inputs_of(heads), ("table", f32, "inout")],
        [],
        (
            [*heads.outer, ("m", heads.rows), ("n", heads.keys)],
            [Store("table", add(M, mul(N, -1), DISTANCES // 2), value, "add")],
        ),
        symbols=symbols,
    )


def points(name: str, heads: Heads, change: Change = plain) -> Kernel:
    """Return the kernel that stores dS."""
    value = unmasked(gradient(heads, N, change), N, change, NOTHING)
    return kernel(
        name,
        [*inputs_of(heads), ("points", f32, "out")],
        [*heads.outer, ("m", heads.rows), ("n", heads.keys)],
        ((), [Store("points", add(mul(heads.row(), heads.keys), N), value)]),
    )


def listed_distances(name: str, heads: Heads, block: int, keys: int, change: Change = plain) -> Kernel:
    """Return the kernel of ``distances`` under a block mask."""
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
    offset = substitute(store.offset, {"n": key(masked(inside, chosen, const(0, i32)))})
    return kernel(
        name,
        [*inputs_of(heads), ("count", i32, "in"), ("listed", i32, "in"), ("table", f32, "inout")],
        [],
        (
            [*heads.outer, ("m", heads.rows), ("j", blocks), ("t", keys)],
            [replace(store, value=value, offset=offset)],
        ),
    )


def sized(made: Kernel, heads: Heads, symbols: Mapping[str, int] | None = None) -> Case:
    """Return a case of a kernel over heads."""
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
    """Yield every case: sizes around those of tiles, dtypes, GQA, masks, block masks, symbolic sizes."""
    for number, heads in enumerate(
        (Heads(), Heads(rows=64, keys=64, depth=64, width=64), Heads(rows=1, keys=41), Heads(group=2),
         Heads(rows=32, group=3, dtype=f32), Heads(rows=48, keys=130, depth=20, width=40, dtype=f16))
    ):  # fmt: skip
        # A sum over one query is no reduction.
        for make in (rows, distances, points, *((columns,) if heads.rows != 1 else ())):
            change = causal if number % 2 == 0 else plain
            yield sized(make(f"scores_{make.__name__}_{number}", heads, change), heads)
    even, uneven = Heads(rows=96, keys=96), Heads(rows=70, keys=96)
    for number, heads in enumerate((even, uneven, replace(even, group=2))):
        yield sized(listed_distances(f"scores_listed_{number}", heads, 32, 32, causal), heads)
    heads = Heads(batch=symbol("s0"), rows=symbol("s1"), keys=symbol("s2"))
    infos = tuple(SymbolInfo(name, low=0, hint=40) for name in ("s0", "s1", "s2"))
    yield sized(distances("scores_symbolic", heads, symbols=infos), heads, {"s0": 2, "s1": 23, "s2": 37})


if __name__ == "__main__":
    main(list(cases()), sys.argv[1:])
