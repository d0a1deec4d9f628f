"""Hand-built fused attention kernels: forward and backward, with GQA, masks and block masks.

``TRITON_INTERPRET=1 python triton_fused_attention.py`` runs them as ``triton_corpus`` runs its own. The builders make
kernels of any size, for tests of compilation and for timing.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from triton_cases import Case, Make, kernel, main, scalar

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
    op,
    substitute_expr,
    transform,
)
from litz_ir.scalar.build import load
from litz_ir.symbols import Size, SymbolInfo, add, floordiv, mul, symbol

B, G, M, N, D, E, J, T = map(symbol, ("b", "g", "m", "n", "d", "e", "j", "t"))
MASKED = const(-math.inf, f32)
SOFTMAX_SUM = (("top", f32), ("total", f32), ("weighted", f32))

Buffers = Sequence[tuple[str, DType, Access]]
Change = Callable[[Expr, Size], Expr]
"""A score_mod: from a score and the index of its key to the modified score."""


def plain(score: Expr, key: Size) -> Expr:
    """Return the score unchanged."""
    return score


def causal(score: Expr, key: Size) -> Expr:
    """Mask the keys after the position of the query."""
    return op("where", op("ge", index(M), index(key)), score, MASKED)


def promised(score: Expr, key: Size) -> Expr:
    """Mask a score as ``causal`` does, except in the blocks of 32 queries that `listed` has as full ones."""
    partial = op("lt", cast(index(J), i32), load("count", (floordiv(M, 32),), i32))
    shown = op("bit_or", op("bit_not", partial), op("ge", index(M), index(key)))
    return op("where", shown, score, MASKED)


def biased(score: Expr, key: Size) -> Expr:
    """Apply a soft cap, and add a bias that depends on the distance of query and key."""
    capped = op("mul", op("tanh", op("mul", score, const(0.25, f32))), const(4.0, f32))
    return op("add", capped, load("bias", (add(M, mul(key, -1), 200),), f32))


@dataclass(frozen=True, slots=True)
class Heads:
    """The sizes of Q, K and V."""

    batch: Size = 2
    """Heads of keys and values, of all sequences."""
    rows: Size = 23
    """Queries of a head."""
    keys: Size = 41
    """Keys of a head."""
    depth: int = 32
    """The head dimension of Q and K."""
    width: int = 32
    """The head dimension of V."""
    group: int = 1
    """Heads of queries for each head of keys and values (GQA)."""
    dtype: DType = bf16
    """The dtype of Q, K, V and the output."""
    alternating: bool = False
    """True if the rows of all heads alternate in memory, so that a head is a part of the columns of a matrix."""

    @property
    def scale(self) -> float:
        return self.depth**-0.5

    def row(self, rows: Size = M) -> Size:
        """Return the index of a query among those of all heads."""
        head = add(mul(B, self.group), G if self.group > 1 else 0)
        if self.alternating:
            return add(mul(rows, mul(self.batch, self.group)), head)
        return add(mul(head, self.rows), rows)

    def key(self, key: Size) -> Size:
        """Return the index of a key among those of all heads."""
        return add(mul(key, self.batch), B) if self.alternating else add(mul(B, self.keys), key)

    def query_at(self, along: Size) -> Expr:
        """Return an element of Q."""
        return self._load("q", self.row(), along, self.depth)

    def key_at(self, key: Size, along: Size) -> Expr:
        """Return an element of K."""
        return self._load("k", self.key(key), along, self.depth)

    def value_at(self, key: Size, along: Size) -> Expr:
        """Return an element of V."""
        return self._load("v", self.key(key), along, self.width)

    def output_gradient_at(self, along: Size) -> Expr:
        """Return an element of the gradient of the output."""
        return self._load("do", self.row(), along, self.width)

    def _load(self, buffer: str, row: Size, along: Size, width: int) -> Expr:
        return cast(load(buffer, (add(mul(row, width), along),), self.dtype), f32)

    def score(self, key: Size, change: Change) -> Expr:
        """Return the score of a query and a key, modified by ``change``."""
        qk = NestedReduction((("e", self.depth),), op("mul", self.query_at(E), self.key_at(key, E)))
        return change(op("mul", qk, const(self.scale, f32)), key)

    @property
    def outer(self) -> list[tuple[str, Size]]:
        return [("b", self.batch), *([("g", self.group)] if self.group > 1 else [])]

    def sizes(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return the number of elements of each buffer for these values of symbols."""

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
    """Return a case of a kernel over heads; ``more`` has the sizes of other buffers."""
    sizes = {**heads.sizes(symbols or {}), **dict.fromkeys(("count", "more", "listed", "behind"), 64)}
    sizes |= dict.fromkeys((each for each, _ in SOFTMAX_SUM), 2 * sizes["o"]) | dict(more or {})
    own = {parameter.name: sizes[parameter.name] for parameter in made.parameters}
    tolerance = 1e-4 if heads.dtype == f32 else 2e-2
    fills = {"lse": lambda rng, count: rng.uniform(6, 8, count), **(fill or {})}
    # Gradients are sums of terms of up to 1e5, of which f32 rounds each by 1e-2 at most.
    atol = max(tolerance, 1e-2) if "do" in own else tolerance
    return Case(made, own, fills, symbols or {}, rtol=tolerance, atol=atol)


def forward(
    name: str,
    heads: Heads,
    change: Change = plain,
    more: Buffers = (),
    schedule: TileRequest | None = None,
    symbols: Sequence[SymbolInfo] = (),
) -> Kernel:
    """Return the kernel of the output ``o`` and of ``lse``, the log-sum-exp of each row of scores."""
    value = (heads.score(N, change), heads.value_at(N, D))
    return kernel(
        name,
        [*inputs(heads, "q", "k", "v"), *more, *results(heads, "lse", "o")],
        [*heads.outer, ("m", heads.rows), ("d", heads.width)],
        ([("n", heads.keys)], [Accumulate(SOFTMAX_SUM, NamedCombiner("softmax_sum"), value)]),
        ((), softmax_stores(heads)),
        schedule=schedule,
        symbols=symbols,
    )


def softmax_stores(heads: Heads) -> list[Store]:
    """Return the stores of ``lse`` and ``o``, which is zero for a query whose keys are all masked."""
    top, total, weighted = (scalar(name) for name, _ in SOFTMAX_SUM)
    share = op("div", weighted, total)
    shown = op("where", op("eq", total, const(0.0, f32)), const(0.0, f32), share)
    return [
        Store("lse", heads.row(), op("add", top, op("log", total))),
        Store("o", add(mul(heads.row(), heads.width), D), cast(shown, heads.dtype)),
    ]


def inputs(heads: Heads, *names: str) -> list[tuple[str, DType, Access]]:
    """Return input buffers: values per query in f32, others in the dtype of the heads."""
    return [(name, f32 if name in ("lse", "delta") else heads.dtype, "in") for name in names]


def results(heads: Heads, *names: str) -> list[tuple[str, DType, Access]]:
    """Return output buffers, with the dtypes of ``inputs``."""
    return [(name, dtype, "out") for name, dtype, _ in inputs(heads, *names)]


def weight(heads: Heads, key: Size, change: Change) -> Expr:
    """Return P, the softmax weight of a key for a query, from the saved ``lse``."""
    lse = load("lse", (heads.row(),), f32)
    return op("exp", op("sub", heads.score(key, change), lse))


def gradient(heads: Heads, key: Size, change: Change) -> Expr:
    """Return dS, the gradient of a score."""
    dp = NestedReduction(
        (("c", heads.width),),
        op("mul", heads.output_gradient_at(symbol("c")), heads.value_at(key, symbol("c"))),
    )
    centred = op("sub", dp, load("delta", (heads.row(),), f32))
    return op("mul", op("mul", weight(heads, key, change), centred), const(heads.scale, f32))


def rounded(p: Expr, v: Expr, heads: Heads) -> Expr:
    """Multiply P, rounded to the dtype of the heads, with V."""
    return op("mul", cast(cast(p, heads.dtype), f32) if heads.dtype != f32 else p, v)


def query_gradient(name: str, heads: Heads, change: Change = plain, more: Buffers = ()) -> Kernel:
    """Return the kernel of ``dq``."""
    value = rounded(gradient(heads, N, change), heads.key_at(N, D), heads)
    return kernel(
        name,
        [*inputs(heads, "q", "k", "v", "do", "lse", "delta"), *more, *results(heads, "dq")],
        [*heads.outer, ("m", heads.rows), ("d", heads.depth)],
        ([("n", heads.keys)], [Accumulate((("s", f32),), NamedCombiner("sum"), (value,))]),
        ((), [Store("dq", add(mul(heads.row(), heads.depth), D), cast(scalar("s"), heads.dtype))]),
    )


def key_gradients(name: str, heads: Heads, change: Change = plain, more: Buffers = ()) -> Kernel:
    """Return the kernel of ``dk`` and ``dv``, which share the scores."""
    p = {"dv": weight(heads, N, change), "dk": gradient(heads, N, change)}
    v = {"dv": heads.output_gradient_at(D), "dk": heads.query_at(D)}
    sums = [
        Accumulate(((f"{each}_sum", f32),), NamedCombiner("sum"), (rounded(p[each], v[each], heads),))
        for each in ("dv", "dk")
    ]
    offset = add(mul(heads.key(N), heads.depth), D)
    group = [("g", heads.group)] if heads.group > 1 else []
    return kernel(
        name,
        [*inputs(heads, "q", "k", "v", "do", "lse", "delta"), *more, *results(heads, "dv", "dk")],
        [("b", heads.batch), ("n", heads.keys), ("d", heads.depth)],
        ([*group, ("m", heads.rows)], sums),
        ((), [Store(each, offset, cast(scalar(f"{each}_sum"), heads.dtype)) for each in ("dv", "dk")]),
    )


def listed(name: str, heads: Heads, rows: int, keys: int, change: Change = plain, splits: int = 1) -> Kernel:
    """Return the forward kernel of a block mask, whose blocks have ``rows`` queries and ``keys`` keys.

    A block of queries sees ``count`` key blocks of the list ``listed``, then ``more`` of ``behind``, as the partial and
    the full blocks of FlexAttention.
    With several ``splits`` each sums its share of the list (flash decoding), and no result is divided.
    """
    assert isinstance(heads.keys, int)
    blocks = -(-heads.keys // keys)
    block, each = floordiv(M, rows), -(-blocks // splits)
    at = index(J if splits == 1 else add(mul(G, each), J))
    position = cast(at, i32)
    partial, full = (load(buffer, (block,), i32) for buffer in ("count", "more"))
    positions = {"listed": at, "behind": cast(op("sub", position, partial), i64)}
    own = [
        load(buffer, (add(mul(block, blocks), Indirect(value, blocks, False, "clamped")),), i32)
        for buffer, value in positions.items()
    ]
    chosen = op("where", op("lt", position, partial), *own)
    key = add(mul(Indirect(chosen, blocks, False, "assumed"), keys), T)
    inside = op("lt", position, op("add", partial, full))
    score = masked(inside, heads.score(key, change), MASKED)
    value = masked(inside, heads.value_at(key, D), const(0.0, f32))
    lists: Buffers = [(buffer, i32, "in") for buffer in ("count", "more", "listed", "behind")]
    unscaled = [
        Store(
            each,
            add(mul(G, heads.batch, heads.rows, heads.width), mul(heads.row(), heads.width), D),
            scalar(each),
        )
        for each, _ in SOFTMAX_SUM
    ]
    whole = splits == 1
    return kernel(
        name,
        [*inputs(heads, "q", "k", "v"), *lists]
        + (results(heads, "lse", "o") if whole else [(each, f32, "out") for each, _ in SOFTMAX_SUM]),
        [*heads.outer, *([] if whole else [("g", splits)]), ("m", heads.rows), ("d", heads.width)],
        ([("j", each), ("t", keys)], [Accumulate(SOFTMAX_SUM, NamedCombiner("softmax_sum"), (score, value))]),
        ((), softmax_stores(heads) if whole else unscaled),
    )


def listed_queries(name: str, heads: Heads, rows: int, keys: int, change: Change = plain) -> Kernel:
    """Return the kernel of ``dv`` and ``dk`` under a block mask, which lists the query blocks of each key block."""
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
"""Contents of the lists of a block mask: some counts are 0, and entries past a count are arbitrary."""


def lowest(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return the lowest finite f32 value, as many times."""
    return np.full(count, np.finfo(np.float32).min)


def cases() -> list[Case]:
    """Return every case."""
    return [*forwards(), *gradients(), *lists(), *described(), *others()]


def forwards() -> Iterator[Case]:
    """Yield forward kernels: sizes around those of tiles, dtypes, GQA, score modifications."""
    for rows, keys, depth, width in ((1, 41, 32, 32), (23, 16, 19, 21), (64, 64, 64, 64), (129, 70, 16, 40)):
        heads = Heads(rows=rows, keys=keys, depth=depth, width=width)
        yield case(forward(f"attention_{rows}_{keys}_{depth}_{width}", heads), heads)
    for dtype in (f16, f32):
        heads = Heads(dtype=dtype)
        yield case(forward(f"attention_{dtype}", heads), heads)
    for rows in (1, 16, 23):
        heads = Heads(rows=rows, group=3)
        yield case(forward(f"attention_gqa_{rows}", heads), heads)
    heads = Heads()
    yield case(forward("attention_causal", heads, causal), heads)
    yield case(forward("attention_biased", heads, biased, BIAS), heads)
    small = Heads(rows=20, keys=24)
    yield case(forward("attention_masked_rows", small, later), small)
    yield case(forward("attention_finite_mask", heads, lowered, BIAS), heads, fill={"bias": lowest})
    yield case(query_gradient("attention_dq_finite_mask", heads, lowered, BIAS), heads, fill={"bias": lowest})
    blocks = TileRequest(blocks=(("m", 32), ("d", 16), ("n", 16)), warps=2, stages=2)
    yield case(forward("attention_scheduled", heads, schedule=blocks), heads)


def lowered(score: Expr, key: Size) -> Expr:
    """Mask keys by adding the lowest finite value; a query with all keys masked weights them equally."""
    hidden = op("lt", index(key), index(add(M, -9)))
    mask = op("where", hidden, const(0.0, f32), load("bias", (0,), f32))
    return op("add", score, mask)


def later(score: Expr, key: Size) -> Expr:
    """Mask all keys of about half of the queries."""
    return op("where", op("lt", index(M), index(10)), score, MASKED)


def tf32_operands(made: Kernel) -> Kernel:
    """Return the kernel with the operands of its nested reductions rounded to TF32."""

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
    """Yield backward kernels, of ``dq`` and of ``dk`` and ``dv``."""
    for number, heads in enumerate(
        (Heads(), Heads(rows=64, keys=64, depth=64, width=64), Heads(group=2), Heads(rows=32, group=3, dtype=f32),
         Heads(rows=48, keys=130, depth=20, width=20, dtype=f16))
    ):  # fmt: skip
        yield case(query_gradient(f"attention_dq_{number}", heads, causal), heads)
        yield case(key_gradients(f"attention_dkdv_{number}", heads, causal), heads)
    exact = Heads(dtype=f32)
    yield case(tf32_operands(forward("attention_tf32", exact, causal)), exact)
    yield case(tf32_operands(key_gradients("attention_dkdv_tf32", exact)), exact)
    uneven = Heads(width=64)
    yield case(query_gradient("attention_dq_head_dims", uneven, biased, BIAS), uneven)


def lists() -> Iterator[Case]:
    """Yield kernels with a block mask: lists of key blocks for queries, and of query blocks for keys."""
    heads, uneven = Heads(rows=96, keys=96), Heads(rows=70, keys=96)
    groups = replace(heads, group=2)
    made = (
        (listed("attention_listed", heads, 32, 32, causal), heads),
        (listed("attention_listed_full", heads, 32, 32, promised), heads),
        (listed("attention_listed_unevenly", uneven, 32, 32), uneven),
        (listed("attention_listed_groups", groups, 32, 32), groups),
        (listed("attention_listed_odd", heads, 33, 32), heads),
        (listed("attention_listed_splits", heads, 32, 32, splits=2), heads),
        (listed_queries("attention_dkdv_listed", heads, 32, 32, causal), heads),
        (listed_queries("attention_dkdv_listed_groups", groups, 32, 32), groups),
    )
    for each, sizes in made:
        yield case(each, sizes, fill=LISTS)


def described() -> Iterator[Case]:
    """Yield kernels that read K and V through tensor descriptors: dense and listed, with tails, for grouped heads."""
    heads, uneven, lists = (
        Heads(rows=24),
        Heads(rows=64, keys=100, depth=32, width=40),
        Heads(rows=96, keys=96),
    )
    groups, halves = replace(lists, group=2), Heads(rows=48, keys=130, depth=24, width=24, dtype=f16)
    made = (
        (forward("attention_described", heads, causal), heads),
        (forward("attention_described_unevenly", uneven), uneven),
        (query_gradient("attention_dq_described", heads, causal), heads),
        (query_gradient("attention_dq_described_f16", halves), halves),
        (key_gradients("attention_dkdv_described", heads, causal), heads),
        (key_gradients("attention_dkdv_described_f16", halves), halves),
        (listed("attention_listed_described", lists, 32, 32, promised), lists),
        (listed("attention_listed_described_groups", groups, 32, 32), groups),
        (listed_queries("attention_dkdv_listed_described", lists, 32, 32, causal), lists),
        (listed_queries("attention_dkdv_listed_described_groups", groups, 32, 32), groups),
    )
    columns = replace(lists, alternating=True)
    padded = replace(columns, depth=24, width=24)
    made += (
        (listed("attention_listed_columns", columns, 32, 32, promised), columns),
        (listed("attention_listed_columns_padded", padded, 32, 32, causal), padded),
        (listed_queries("attention_dkdv_listed_columns", columns, 32, 32, causal), columns),
        (
            listed_queries("attention_dkdv_listed_columns_groups", replace(columns, group=2), 32, 32),
            replace(columns, group=2),
        ),
    )
    for each, sizes in made:
        described = replace(each, schedule=TileRequest(descriptors=True))
        yield case(described, sizes, fill=LISTS if "listed" in each.name else None)


def others() -> Iterator[Case]:
    """Yield kernels with symbolic sizes."""
    heads = Heads(batch=symbol("s0"), rows=symbol("s1"), keys=symbol("s2"))
    infos = [SymbolInfo(name, low=0, hint=40) for name in ("s0", "s1", "s2")]
    for keys in (37, 0):
        counts = {"s0": 2, "s1": 23, "s2": keys}
        found = case(forward(f"attention_symbolic_{keys}", heads, symbols=infos), heads, counts)
        yield replace(found, sizes={name: max(1, size) for name, size in found.sizes.items()})


if __name__ == "__main__":
    main(cases(), sys.argv[1:])
