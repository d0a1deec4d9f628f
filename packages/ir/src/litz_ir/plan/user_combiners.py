"""Kernels whose named combiners are written out, for code generators that have no spelling of some kinds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from litz_ir.loops.combiners import NamedCombiner, as_user_combiner
from litz_ir.plan.kernel import Accumulate, Kernel, Phase, ScanStore, Statement


def with_user_combiners(kernel: Kernel, spelled: Collection[str]) -> Kernel:
    """The kernel with user combiners in place of the named ones that are not ``spelled``, by their definitions.

    Sorts, which are no combinations, are left as they are, and so are subkernels.
    """
    phases = tuple(
        Phase(phase.axes, tuple(_written_out(each, spelled) for each in phase.statements))
        for phase in kernel.phases
    )
    return replace(kernel, phases=phases)


def _written_out(statement: Statement, spelled: Collection[str]) -> Statement:
    match statement:
        case Accumulate(combiner=NamedCombiner() as named) | ScanStore(combiner=NamedCombiner() as named):
            if named.name in spelled or not named.kind.combines:
                return statement
            combiner, values = as_user_combiner(named, statement.values)
            return replace(statement, combiner=combiner, values=values)
    return statement
