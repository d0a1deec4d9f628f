"""Programs of the corpus that reduce, scan and sort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litz_ir.builder import Tensor
from litz_ir.dtypes import b1, f32, i32, i64
from litz_ir.loops import UserCombiner
from litz_ir.scalar import Param, const, op
from litz_scheduler.conformance.case import CaseBuilder, Program


def _row_sums(g: CaseBuilder) -> Tensor:
    return g.sum(g.given("x", 40, 33), axis=1)


def _column_sums(g: CaseBuilder) -> Tensor:
    return g.sum(g.given("x", 33, 40), axis=0)


def _long_row(g: CaseBuilder) -> Tensor:
    return g.sum(g.given("x", 3, 70_000), axis=1)


def _total(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 20_000)
    return g.sum(x), g.max(x), g.min(x)


def _tall_columns(g: CaseBuilder) -> Tensor:
    return g.sum(g.given("x", 3000, 24), axis=0)


def _middle_axis(g: CaseBuilder) -> Tensor:
    return g.max(g.given("x", 5, 20, 6), axis=1)


def _two_axes(g: CaseBuilder) -> Tensor:
    return g.sum(g.given("x", 5, 20, 6), axis=(0, 2), keepdims=True)


def _mean_and_variance(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 12, 50)
    mean = g.mean(x, axis=1, keepdims=True)
    return mean, g.mean((x - mean) * (x - mean), axis=1)


def _welford(g: CaseBuilder) -> Sequence[Tensor]:
    return g.reduce("welford", g.given("x", 12, 50), axis=1)[:2]


def _positions(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 9, 40, dtype=i32, low=-5, high=5)
    smallest = g.reduce("argmin", (x, g.index(x.shape, 0)), axis=0)
    return g.argmax(x, axis=1), *smallest


def _logic(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 6, 10, dtype=b1)
    return g.reduce("any", x, axis=1)[0], g.reduce("all", x, axis=0)[0]


def _multiplied(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 6, 10, low=0.5, high=1.5)
    n = g.given("n", 6, 10, dtype=i64, low=-3, high=4)
    return g.reduce("prod", x, axis=1)[0], g.reduce("prod", n, axis=1)[0], g.reduce("xor", n, axis=0)[0]


def _user_combiner(g: CaseBuilder) -> Tensor:
    a, b = Param(0, f32), Param(1, f32)
    largest = UserCombiner((op("maximum", a, op("abs", b)),), (const(0.0, f32),), (op("neg", a),))
    x = g.given("x", 8, 30)
    return g.reduce(largest, g.abs(x), axis=1)[0]


def _logsumexp(g: CaseBuilder) -> Tensor:
    x = g.given("x", 10, 64)
    top = g.max(x, axis=1, keepdims=True)
    return g.log(g.sum(g.exp(x - top), axis=1, keepdims=True)) + top


def _online_softmax(g: CaseBuilder) -> Sequence[Tensor]:
    return g.reduce("online_softmax", g.given("x", 10, 64), axis=1)


def _reduction_of_a_reduction(g: CaseBuilder) -> Tensor:
    x = g.given("x", 6, 7, 8)
    return g.max(g.sum(x, axis=2), axis=1)


def _several_reductions(g: CaseBuilder) -> Sequence[Tensor]:
    x, y = g.given("x", 15, 20), g.given("y", 15, 20)
    return g.sum(x * y, axis=1), g.sum(x, axis=1), g.sum(y, axis=0)


def _of_nothing(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 4, 0)
    return g.sum(x, axis=1), g.reduce("prod", x, axis=1)[0]


def _dynamic_rows(g: CaseBuilder) -> Tensor:
    n, m = g.dynamic("n", 11), g.dynamic("m", 19)
    x = g.given("x", n, m)
    return x - g.mean(x, axis=-1, keepdims=True)


def _cumulative(g: CaseBuilder) -> Sequence[Tensor]:
    x, n = g.given("x", 6, 40), g.given("n", 40, 6, dtype=i64, low=-9, high=9)
    return g.scan("sum", x, 1), g.scan("sum", n, 0), g.scan("max", x, 1)


def _cumulative_prod(g: CaseBuilder) -> Tensor:
    return g.scan("prod", g.given("x", 5, 12, low=0.5, high=1.5), 1)


def _scans_with_neighbours(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 6, 40)
    total = g.scan("sum", x, 1)
    centred = total - g.mean(total, axis=-1, keepdims=True)
    return total.flip(1) * x, g.scan("max", centred.flip(1), 1) + x


def _scan_of_a_long_row(g: CaseBuilder) -> Tensor:
    return g.scan("sum", g.given("x", 20_000, dtype=i64, low=-9, high=9), 0)


def _sorted_rows(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 6, 30)
    values, indices = g.sort(x, 1, descending=True)
    return values[:, :5], indices[:, :5]


REDUCTIONS: Mapping[str, Program] = {
    each.__name__[1:]: each
    for each in (
        _row_sums, _column_sums, _long_row, _total, _tall_columns, _middle_axis, _two_axes,
        _mean_and_variance, _welford, _positions, _logic, _multiplied, _user_combiner, _logsumexp,
        _online_softmax, _reduction_of_a_reduction, _several_reductions, _of_nothing, _dynamic_rows,
        _cumulative, _cumulative_prod, _scans_with_neighbours, _scan_of_a_long_row, _sorted_rows,
    )
}  # fmt: skip
"""Programs by name."""
