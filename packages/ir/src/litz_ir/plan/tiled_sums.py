"""Sums over a prepacked weight that a CPU computes in tiles, with loops at the points of their results."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.contraction import TiledSum, tiled_sum
from litz_ir.loops import Axis
from litz_ir.plan.kernel import Accumulate, Phase


def tiled_sum_of(outer: Sequence[Axis], phases: Sequence[Phase], columns: int) -> TiledSum | None:
    """Return the sum of the first phase, whose result the others read at the same points; ``None`` for other phases.

    ``outer`` and ``phases`` are those of a kernel, ``columns`` the output channels of a panel of the weight.
    """
    if not phases or not outer:
        return None
    first, *others = phases
    if len(first.statements) != 1 or any(phase.axes for phase in others):
        return None
    (statement,) = first.statements
    if not isinstance(statement, Accumulate):
        return None
    return tiled_sum(statement.combiner, statement.values, outer, first.axes, columns)
