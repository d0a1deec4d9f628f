"""Chains of products as data: attention, forward and backward, of plain heads and of groups, under masks, by lists.

``TRITON_INTERPRET=1 python triton_fused_attention.py`` runs them as ``triton_corpus`` runs its own. The builders make
kernels of any size, to be compiled and to be timed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from triton_corpus import Case, Make, kernel, load, main, op, scalar

from litz_ir.dtypes import DType, bf16, f16, f32, i32, i64
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Access, Accumulate, Kernel, Statement, Store, TileRequest
from litz_ir.scalar import (
    Expr,
    Indirect,
    NestedReduction,
    Op,
    cast,
    const,
    index,
    masked,
    substitute_expr,
    transform,
)
from litz_ir.symbols import Size, SymbolInfo, add, floordiv, mul, symbol

B, G, M, N, D, E, J, T = map(symbol, ("b", "g", "m", "n", "d", "e", "j", "t"))
HIDDEN = const(-math.inf, f32)
WEIGHED = (("top", f32), ("total", f32), ("weighted", f32))

Buffers = Sequence[tuple[str, DType, Access]]
Change = Callable[[Expr, Size], Expr]
"""A score and the key it is of, to what is made of it."""


def plain(score: Expr, key: Size) -> Expr:
    """The score as it is."""
    return score


def causal(score: Expr, key: Size) -> Expr:
    """No query sees a key behind its own place."""
    return op("where", op("ge", index(M), index(key)), score, HIDDEN)


def biased(score: Expr, key: Size) -> Expr:
    """A cap, and a number for each distance."""
    capped = op("mul", op("tanh", op("mul", score, const(0.25, f32))), const(4.0, f32))
    return op("add", capped, load("bias", (add(M, mul(key, -1), 200),), f32))


@dataclass(frozen=True, slots=True)
class Heads:
    """``batch`` heads of keys and values, each for a ``group`` of heads of queries; ``rows`` queries and ``keys`` keys
    of ``depth`` numbers, values of ``width``."""

    batch: Size = 2
    rows: Size = 23
    keys: Size = 41
    depth: int = 32
    width: int = 32
    group: int = 1
    dtype: DType = bf16

    @property
    def scale(self) -> float:
        return self.depth**-0.5

    def row(self, rows: Size = M) -> Size:
        """The number of a query."""
        return add(mul(add(mul(B, self.group), G if self.group > 1 else 0), self.rows), rows)

    def key(self, key: Size) -> Size:
        """The number of a key."""
        return add(mul(B, self.keys), key)

    def query_at(self, along: Size) -> Expr:
        return self._load("q", self.row(), along, self.depth)

    def key_at(self, key: Size, along: Size) -> Expr:
        return self._load("k", self.key(key), along, self.depth)

    def value_at(self, key: Size, along: Size) -> Expr:
        return self._load("v", self.key(key), along, self.width)

    def given_at(self, along: Size) -> Expr:
        return self._load("do", self.row(), along, self.width)

    def _load(self, buffer: str, row: Size, along: Size, width: int) -> Expr:
        return cast(load(buffer, (add(mul(row, width), along),), self.dtype), f32)

    def score(self, key: Size, change: Change) -> Expr:
        """The score of a query and a key."""
        fold = NestedReduction((("e", self.depth),), op("mul", self.query_at(E), self.key_at(key, E)))
        return change(op("mul", fold, const(self.scale, f32)), key)

    @property
    def outer(self) -> list[tuple[str, Size]]:
        return [("b", self.batch), *([("g", self.group)] if self.group > 1 else [])]

    def sizes(self, counts: Mapping[str, int]) -> dict[str, int]:
        """The elements of each buffer, symbols being so large."""

        def count(size: Size) -> int:
            return size if isinstance(size, int) else counts[str(size)]

        rows, keys = count(self.batch) * self.group * count(self.rows), count(self.batch) * count(self.keys)
        return {
            "q": rows * self.depth, "do": rows * self.width, "o": rows * self.width, "dq": rows * self.depth,
            "k": keys * self.depth, "v": keys * self.width, "dk": keys * self.depth, "dv": keys * self.width,
            "lse": rows, "delta": rows, "bias": 400,
        }  # fmt: skip


def case(
    made: Kernel,
    heads: Heads,
    symbols: Mapping[str, int] | None = None,
    fill: Mapping[str, Make] | None = None,
    more: Mapping[str, int] | None = None,
) -> Case:
    """A kernel over heads as a case; ``more`` says how large other buffers are."""
    sizes = {**heads.sizes(symbols or {}), **dict.fromkeys(("count", "more", "listed", "behind"), 64)}
    sizes |= dict.fromkeys((each for each, _ in WEIGHED), 2 * sizes["o"]) | dict(more or {})
    held = {parameter.name: sizes[parameter.name] for parameter in made.parameters}
    close = 1e-4 if heads.dtype == f32 else 2e-2
    fills = {"lse": lambda rng, count: rng.uniform(6, 8, count), **(fill or {})}
    return Case(made, held, fills, symbols or {}, rtol=close, atol=close)


def forward(
    name: str,
    heads: Heads,
    change: Change = plain,
    more: Buffers = (),
    schedule: TileRequest | None = None,
    symbols: Sequence[SymbolInfo] = (),
) -> Kernel:
    """``o`` by a softmax over all keys, and ``lse``, the logarithms of the sums of its weights."""
    value = (heads.score(N, change), heads.value_at(N, D))
    return kernel(
        name,
        [*inputs(heads, "q", "k", "v"), *more, *results(heads, "lse", "o")],
        [*heads.outer, ("m", heads.rows), ("d", heads.width)],
        ([("n", heads.keys)], [Accumulate(WEIGHED, NamedCombiner("softmax_sum"), value)]),
        ((), weighed(heads)),
        schedule=schedule,
        symbols=symbols,
    )


def weighed(heads: Heads) -> list[Store]:
    """The results of a softmax: nothing where a query sees no key."""
    top, total, weighted = (scalar(name) for name, _ in WEIGHED)
    share = op("div", weighted, total)
    shown = op("where", op("eq", total, const(0.0, f32)), const(0.0, f32), share)
    return [
        Store("lse", heads.row(), op("add", top, op("log", total))),
        Store("o", add(mul(heads.row(), heads.width), D), cast(shown, heads.dtype)),
    ]


def inputs(heads: Heads, *names: str) -> list[tuple[str, DType, Access]]:
    """Buffers that are read: numbers of queries in ``f32``, others in the heads' dtype."""
    return [(name, f32 if name in ("lse", "delta") else heads.dtype, "in") for name in names]


def results(heads: Heads, *names: str) -> list[tuple[str, DType, Access]]:
    """Buffers that are written."""
    return [(name, dtype, "out") for name, dtype, _ in inputs(heads, *names)]


def weight(heads: Heads, key: Size, change: Change) -> Expr:
    """What a key weighs for a query."""
    lse = load("lse", (heads.row(),), f32)
    return op("exp", op("sub", heads.score(key, change), lse))


def gradient(heads: Heads, key: Size, change: Change) -> Expr:
    """The gradient of a score."""
    share = NestedReduction(
        (("c", heads.width),), op("mul", heads.given_at(symbol("c")), heads.value_at(key, symbol("c")))
    )
    above = op("sub", share, load("delta", (heads.row(),), f32))
    return op("mul", op("mul", weight(heads, key, change), above), const(heads.scale, f32))


def rounded(left: Expr, right: Expr, heads: Heads) -> Expr:
    """The product of a left factor that is rounded first where its right one is a narrow float."""
    return op("mul", cast(cast(left, heads.dtype), f32) if heads.dtype != f32 else left, right)


def query_gradient(name: str, heads: Heads, change: Change = plain, more: Buffers = ()) -> Kernel:
    """``dq``."""
    value = rounded(gradient(heads, N, change), heads.key_at(N, D), heads)
    return kernel(
        name,
        [*inputs(heads, "q", "k", "v", "do", "lse", "delta"), *more, *results(heads, "dq")],
        [*heads.outer, ("m", heads.rows), ("d", heads.depth)],
        ([("n", heads.keys)], [Accumulate((("s", f32),), NamedCombiner("sum"), (value,))]),
        ((), [Store("dq", add(mul(heads.row(), heads.depth), D), cast(scalar("s"), heads.dtype))]),
    )


def key_gradients(name: str, heads: Heads, change: Change = plain, more: Buffers = ()) -> Kernel:
    """``dk`` and ``dv`` at once: both take the scores."""
    left = {"dv": weight(heads, N, change), "dk": gradient(heads, N, change)}
    right = {"dv": heads.given_at(D), "dk": heads.query_at(D)}
    sums = [
        Accumulate(((f"{each}_sum", f32),), NamedCombiner("sum"), (rounded(left[each], right[each], heads),))
        for each in ("dv", "dk")
    ]
    place = add(mul(heads.key(N), heads.depth), D)
    group = [("g", heads.group)] if heads.group > 1 else []
    return kernel(
        name,
        [*inputs(heads, "q", "k", "v", "do", "lse", "delta"), *more, *results(heads, "dv", "dk")],
        [("b", heads.batch), ("n", heads.keys), ("d", heads.depth)],
        ([*group, ("m", heads.rows)], sums),
        ((), [Store(each, place, cast(scalar(f"{each}_sum"), heads.dtype)) for each in ("dv", "dk")]),
    )


def listed(name: str, heads: Heads, rows: int, keys: int, change: Change = plain, parts: int = 1) -> Kernel:
    """Keys in blocks of ``keys``, of which a block of ``rows`` queries sees those that are listed for it: as many of
    one list as are counted, then as many of another one. Of several ``parts`` each goes through its share of places."""
    assert isinstance(heads.keys, int)
    blocks = -(-heads.keys // keys)
    block, each = floordiv(M, rows), -(-blocks // parts)
    at = index(J if parts == 1 else add(mul(G, each), J))
    place = cast(at, i32)
    few, more = (load(buffer, (block,), i32) for buffer in ("count", "more"))
    places = {"listed": at, "behind": cast(op("sub", place, few), i64)}
    own = [
        load(buffer, (add(mul(block, blocks), Indirect(value, blocks, False, "clamped")),), i32)
        for buffer, value in places.items()
    ]
    chosen = op("where", op("lt", place, few), *own)
    key = add(mul(Indirect(chosen, blocks, False, "assumed"), keys), T)
    inside = op("lt", place, op("add", few, more))
    score = masked(inside, heads.score(key, change), HIDDEN)
    value = masked(inside, heads.value_at(key, D), const(0.0, f32))
    lists: Buffers = [(buffer, i32, "in") for buffer in ("count", "more", "listed", "behind")]
    divided = [
        Store(
            each,
            add(mul(G, heads.batch, heads.rows, heads.width), mul(heads.row(), heads.width), D),
            scalar(each),
        )
        for each, _ in WEIGHED
    ]
    whole = parts == 1
    return kernel(
        name,
        [*inputs(heads, "q", "k", "v"), *lists]
        + (results(heads, "lse", "o") if whole else [(each, f32, "out") for each, _ in WEIGHED]),
        [*heads.outer, *([] if whole else [("g", parts)]), ("m", heads.rows), ("d", heads.width)],
        ([("j", each), ("t", keys)], [Accumulate(WEIGHED, NamedCombiner("softmax_sum"), (score, value))]),
        ((), weighed(heads) if whole else divided),
    )


def listed_queries(name: str, heads: Heads, rows: int, keys: int, change: Change = plain) -> Kernel:
    """``dv`` and ``dk`` where a block of keys is seen by the blocks of queries that are listed for it."""
    assert isinstance(heads.rows, int)
    blocks = -(-heads.rows // rows)
    block = floordiv(N, keys)
    at = add(mul(Indirect(load("listed", (block * blocks + J,), i32), blocks, False, "assumed"), rows), T)
    inside = op("lt", index(J), cast(load("count", (block,), i32), index(J).dtype))
    dense = key_gradients(name, heads, change)
    (first, last) = dense.phases
    sums = []
    for each in first.statements:
        assert isinstance(each, Accumulate)
        value = substitute_expr(each.values[0], {"m": at})
        sums.append(replace(each, values=(masked(inside, value, const(0.0, f32)),)))
    group = [(axis.name, axis.size) for axis in first.axes[:-1]]
    return kernel(
        name,
        [(p.name, p.dtype, p.access) for p in dense.parameters[:-2]]
        + [("count", i32, "in"), ("listed", i32, "in")]
        + results(heads, "dv", "dk"),
        [("b", heads.batch), ("n", heads.keys), ("d", heads.depth)],
        ([*group, ("j", blocks), ("t", rows)], sums),
        ((), list(last.statements)),
    )


BIAS: Buffers = (("bias", f32, "in"),)
LISTS: Mapping[str, Make] = {
    "count": lambda rng, count: np.resize([2, 0, 1, 1], count),
    "more": lambda rng, count: np.resize([0, 0, 2, 1], count),
    "listed": lambda rng, count: np.resize([2, 0, 1, 1, 2, 0], count),
    "behind": lambda rng, count: np.resize([1, 2, 0, 1, 2, 0, 0, 2, 1], count),
}
"""How many blocks are listed for each, and which: some see none, and what is behind a count is not read."""


def lowest(rng: np.random.Generator, count: int) -> np.ndarray:
    """The lowest number of ``f32``."""
    return np.full(count, np.finfo(np.float32).min)


def cases() -> list[Case]:
    """Every case."""
    return [*forwards(), *gradients(), *lists(), *others()]


def forwards() -> Iterator[Case]:
    """The softmax: sizes around those of tiles, dtypes, groups, what becomes of scores."""
    for rows, keys, depth, width in ((1, 41, 32, 32), (23, 16, 19, 21), (64, 64, 64, 64), (129, 70, 16, 40)):
        heads = Heads(rows=rows, keys=keys, depth=depth, width=width)
        yield case(forward(f"chain_{rows}_{keys}_{depth}_{width}", heads), heads)
    for dtype in (f16, f32):
        heads = Heads(dtype=dtype)
        yield case(forward(f"chain_{dtype}", heads), heads)
    for rows in (1, 16, 23):
        heads = Heads(rows=rows, group=3)
        yield case(forward(f"chain_of_groups_{rows}", heads), heads)
    heads = Heads()
    yield case(forward("chain_causal", heads, causal), heads)
    yield case(forward("chain_biased", heads, biased, BIAS), heads)
    nobody = Heads(rows=20, keys=24)
    yield case(forward("chain_hidden", nobody, later), nobody)
    yield case(forward("chain_lowered", heads, lowered, BIAS), heads, fill={"bias": lowest})
    yield case(query_gradient("chain_dq_lowered", heads, lowered, BIAS), heads, fill={"bias": lowest})
    blocks = TileRequest(blocks=(("m", 32), ("d", 16), ("n", 16)), warps=2, stages=2)
    yield case(forward("chain_scheduled", heads, schedule=blocks), heads)


def lowered(score: Expr, key: Size) -> Expr:
    """Keys that are hidden by the lowest number there is: those who see none see all alike."""
    hidden = op("lt", index(key), index(add(M, -9)))
    mask = op("where", hidden, const(0.0, f32), load("bias", (0,), f32))
    return op("add", score, mask)


def later(score: Expr, key: Size) -> Expr:
    """Half of the queries see no key at all."""
    return op("where", op("lt", index(M), index(10)), score, HIDDEN)


def rounded_folds(made: Kernel) -> Kernel:
    """The kernel with the factors of what it folds rounded to TF32."""

    def node(expr: Expr) -> Expr:
        if not isinstance(expr, NestedReduction):
            return expr
        assert isinstance(expr.body, Op)
        return NestedReduction(expr.axes, op("mul_tf32", *expr.body.args))

    def statement(each: Statement) -> Statement:
        if not isinstance(each, Accumulate):
            return each
        return replace(each, values=tuple(transform(value, node) for value in each.values))

    phases = (replace(phase, statements=tuple(map(statement, phase.statements))) for phase in made.phases)
    return replace(made, phases=tuple(phases))


def gradients() -> Iterator[Case]:
    """Both kernels of the way back."""
    for number, heads in enumerate(
        (Heads(), Heads(rows=64, keys=64, depth=64, width=64), Heads(group=2), Heads(rows=32, group=3, dtype=f32),
         Heads(rows=48, keys=130, depth=20, width=20, dtype=f16))
    ):  # fmt: skip
        yield case(query_gradient(f"chain_dq_{number}", heads, causal), heads)
        yield case(key_gradients(f"chain_dkdv_{number}", heads, causal), heads)
    exact = Heads(dtype=f32)
    yield case(rounded_folds(forward("chain_tf32", exact, causal)), exact)
    yield case(rounded_folds(key_gradients("chain_dkdv_tf32", exact)), exact)
    wide = Heads(width=64)
    yield case(query_gradient("chain_dq_of_wide_values", wide, biased, BIAS), wide)


def lists() -> Iterator[Case]:
    """Blocks of which some are listed: of keys for queries, and of queries for keys."""
    heads, uneven = Heads(rows=96, keys=96), Heads(rows=70, keys=96)
    groups = replace(heads, group=2)
    made = (
        (listed("chain_listed", heads, 32, 32, causal), heads),
        (listed("chain_listed_unevenly", uneven, 32, 32), uneven),
        (listed("chain_listed_groups", groups, 32, 32), groups),
        (listed("chain_listed_odd", heads, 33, 32), heads),
        (listed("chain_listed_parts", heads, 32, 32, parts=2), heads),
        (listed_queries("chain_dkdv_listed", heads, 32, 32, causal), heads),
        (listed_queries("chain_dkdv_listed_groups", groups, 32, 32), groups),
    )
    for each, its in made:
        yield case(each, its, fill=LISTS)


def others() -> Iterator[Case]:
    """Sizes that are not known."""
    heads = Heads(batch=symbol("s0"), rows=symbol("s1"), keys=symbol("s2"))
    infos = [SymbolInfo(name, low=0, hint=40) for name in ("s0", "s1", "s2")]
    for keys in (37, 0):
        counts = {"s0": 2, "s1": 23, "s2": keys}
        held = case(forward(f"chain_open_{keys}", heads, symbols=infos), heads, counts)
        yield replace(held, sizes={name: max(1, size) for name, size in held.sizes.items()})


if __name__ == "__main__":
    main(cases(), sys.argv[1:])
