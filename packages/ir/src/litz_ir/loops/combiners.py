"""Combiners of reductions and scans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from litz_ir.scalar.expr import Param, walk
from litz_ir.scalar.node import Expr

ReductionName = Literal[
    "sum", "prod", "min", "max", "any", "all", "xor", "argmin", "argmax", "welford", "online_softmax",
    "softmax_sum", "sort",
]  # fmt: skip


_RESULTS: Mapping[str, int] = MappingProxyType(
    {"argmin": 2, "argmax": 2, "welford": 3, "online_softmax": 2, "softmax_sum": 3}
)


@dataclass(frozen=True, slots=True)
class NamedCombiner:
    """A combiner of the table, by name, with its inputs and results.

    - ``sum prod min max any all xor``: one value to one. ``min`` and ``max`` propagate NaN.
    - ``argmin argmax``: (value, index) to (value, index). The first index wins ties; NaN wins over numbers.
    - ``welford``: one value to (mean, sum of squared differences from it, count).
    - ``online_softmax``: one value to (maximum, sum of exponentials relative to it).
    - ``softmax_sum``: (score, value) to (maximum score, sum of exponentials relative to it, sum of these times the
      values). The sums are 0 if no score is above minus infinity.
    - ``sort``: one integer to one, in scans only. The k-th result is not a combination of the first k points, but the
      k-th largest of all points along the axis.
    """

    name: ReductionName
    """Name in the table."""

    @property
    def inputs(self) -> int:
        """Number of values combined at each point."""
        return 2 if self.name in ("argmin", "argmax", "softmax_sum") else 1

    @property
    def results(self) -> int:
        """Number of results."""
        return _RESULTS.get(self.name, 1)


SORT = NamedCombiner("sort")
"""The combiner that sorts the scanned axis."""


@dataclass(frozen=True, slots=True)
class UserCombiner:
    """A user-given associative combination of tuples of ``n`` values."""

    body: tuple[Expr, ...]
    """``n`` expressions over ``Param(0..n-1)``, the accumulated values, and ``Param(n..2n-1)``, the new element."""
    identity: tuple[Expr, ...]
    """``n`` literals."""
    finish: tuple[Expr, ...]
    """Expressions over ``Param(0..n-1)`` that compute the results from the accumulated values."""

    @property
    def inputs(self) -> int:
        """Number of values combined at each point."""
        return len(self.identity)

    @property
    def results(self) -> int:
        """Number of results."""
        return len(self.finish)


Combiner = NamedCombiner | UserCombiner


def result_operands(combiner: Combiner, position: int) -> frozenset[int]:
    """Positions of the combined values that the result at ``position`` depends on."""
    if isinstance(combiner, NamedCombiner):
        scores_alone = combiner.name == "softmax_sum" and position < 2
        return frozenset(range(1 if scores_alone else combiner.inputs))
    count = combiner.inputs
    found: set[int] = set()
    waiting = [combiner.finish[position]]
    while waiting:
        read = {node.position % count for node in walk(waiting.pop()) if isinstance(node, Param)} - found
        found |= read
        waiting += [combiner.body[k] for k in read]
    return frozenset(found)
