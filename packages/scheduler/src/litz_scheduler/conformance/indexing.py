"""Programs of the corpus with indices in memory and with control flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litz_ir.builder import GraphBuilder, Tensor
from litz_ir.dtypes import f32, i64
from litz_ir.loops import LoopGraph
from litz_scheduler.conformance.case import CaseBuilder, Program


def _embedding(g: CaseBuilder) -> Tensor:
    table, ids = g.given("table", 20, 12), g.given("ids", 4, 6, dtype=i64, low=0, high=20)
    return g.take(table, ids) * 3.0


def _embedding_and_positions(g: CaseBuilder) -> Tensor:
    table, offsets = g.given("table", 20, 12), g.given("offsets", 6, 12)
    ids = g.given("ids", 4, 6, dtype=i64, low=-20, high=20)
    x = g.take(table, ids) + offsets
    return x - g.mean(x, axis=-1, keepdims=True)


def _columns(g: CaseBuilder) -> Tensor:
    return g.take(g.given("x", 7, 15), g.given("ids", 9, dtype=i64, low=0, high=15), axis=1)


def _embedding_gradient(g: CaseBuilder) -> Tensor:
    ids, gradient = g.given("ids", 16, 1, dtype=i64, low=0, high=10), g.given("gradient", 16, 8)
    return g.scatter(g.full((10, 8), 0.0, f32), ids, gradient, mode="add")


def _counts(g: CaseBuilder) -> Tensor:
    ids = g.given("ids", 50, dtype=i64, low=0, high=8)
    return g.scatter(g.full((8,), 0, i64), ids, g.full((50,), 1, i64), mode="add")


def _last_write(g: CaseBuilder) -> Tensor:
    x, values = g.given("x", 6, 5), g.given("values", 2, 5)
    rows = g.index((2, 5), 0) * 3
    return g.scatter(x, rows, values, mode="set")


def _largest_write(g: CaseBuilder) -> Tensor:
    x, ids, values = (
        g.given("x", 6, 5),
        g.given("ids", 9, 5, dtype=i64, low=0, high=6),
        g.given("values", 9, 5),
    )
    return g.scatter(x, ids, values, mode="max")


def _dynamic_positions(g: CaseBuilder) -> Tensor:
    n = g.dynamic("n", 5)
    return g.take(g.given("x", 11, 3), g.given("ids", n, dtype=i64, low=-11, high=11))


def branch(name: str, scale: float, g: CaseBuilder) -> LoopGraph:
    """Return a graph that multiplies its input."""
    inner = GraphBuilder(name, device=g.device)
    x = inner.input("x", f32, (6,))
    return inner.build(inner.exp(x) * scale)


def _taken_branch(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 6)
    return g.cond(g.sum(x * x) > 0.0, branch("yes", 2.0, g), branch("no", -2.0, g), x)


def _other_branch(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 6)
    return g.cond(g.sum(x * x) < 0.0, branch("yes", 2.0, g), branch("no", -2.0, g), x + 1.0)


INDEXING: Mapping[str, Program] = {
    each.__name__[1:]: each
    for each in (
        _embedding, _embedding_and_positions, _columns, _embedding_gradient, _counts, _last_write,
        _largest_write, _dynamic_positions, _taken_branch, _other_branch,
    )
}  # fmt: skip
"""Programs by name."""
