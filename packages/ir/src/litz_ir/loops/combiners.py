"""How reductions and scans combine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from litz_ir.scalar.expr import Expr, Param, walk

ReductionName = Literal[
    "sum", "prod", "min", "max", "any", "all", "xor", "argmin", "argmax", "welford", "online_softmax",
    "softmax_sum", "sort",
]  # fmt: skip


_RESULTS: Mapping[str, int] = MappingProxyType(
    {"argmin": 2, "argmax": 2, "welford": 3, "online_softmax": 2, "softmax_sum": 3}
)


@dataclass(frozen=True, slots=True)
class NamedCombiner:
    """A named way to combine. What goes in and comes out:

    ``sum prod min max any all xor``: one value to one. ``argmin argmax``: (value, index) to (value, index); the first
    index wins ties and NaN wins over numbers. ``welford``: one value to (mean, sum of squared differences, count).
    ``online_softmax``: one value to (maximum, sum of exponentials relative to it). ``softmax_sum``: (score, value) to
    (maximum score, sum of exponentials relative to it, sum of these times the values), the sums 0 where no score is
    above minus infinity. ``min`` and ``max`` propagate NaN.

    ``sort`` is for scans alone, and for integers: what they have at the k-th point is no combination of what came
    before, but the k-th largest of all points along the axis.
    """

    name: ReductionName

    @property
    def inputs(self) -> int:
        return 2 if self.name in ("argmin", "argmax", "softmax_sum") else 1

    @property
    def results(self) -> int:
        return _RESULTS.get(self.name, 1)


SORT = NamedCombiner("sort")
"""What gives a scan its axis in order."""


@dataclass(frozen=True, slots=True)
class UserCombiner:
    """A user-given associative combination over tuples of ``n`` values.

    ``body`` holds ``n`` expressions over ``Param(0..n-1)`` (what is accumulated) and ``Param(n..2n-1)`` (the new
    element); ``identity`` ``n`` literals; ``finish`` expressions over ``Param(0..n-1)`` that make the results.
    """

    body: tuple[Expr, ...]
    identity: tuple[Expr, ...]
    finish: tuple[Expr, ...]

    @property
    def inputs(self) -> int:
        return len(self.identity)

    @property
    def results(self) -> int:
        return len(self.finish)


Combiner = NamedCombiner | UserCombiner


def result_operands(combiner: Combiner, position: int) -> frozenset[int]:
    """Which of the combined values the result at ``position`` depends on, by their positions."""
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
