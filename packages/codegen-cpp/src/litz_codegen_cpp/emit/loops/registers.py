"""The number of vector registers that one step of a vector loop computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from litz_ir.loops import UserCombiner
from litz_ir.plan import Accumulate, Kernel, Phase, ScanStore, Statement, Store, cpu_loops
from litz_ir.scalar import (
    OPS,
    Expr,
    Indirect,
    NestedReduction,
    Op,
    Param,
    Scalar,
    indirects,
    indirects_in,
    walk,
)
from litz_ir.symbols import Size

_REDUCING = 4
"""Registers for reductions, to overlap dependent additions; half of it for bodies above :data:`_HEAVY_BODY`."""

_ACCUMULATORS = 16
"""The most registers of all accumulators of a phase, half of those of a CPU."""

_HEAVY_BODY = 40
"""Operations of a body above which a reduction uses half as many registers."""
CHAINS, LONG_CHAIN, LONGEST_CHAIN = 4, 20, 100
"""Registers for other bodies whose cost, in additions, is between the two limits: one computes while another waits."""

_SHORT_BODY = 8
"""Bodies of at most this many operations wait for memory alone, and also use ``CHAINS`` registers, for more loads."""


def outer_registers(kernel: Kernel, lanes: int) -> int:
    """Return the registers of outer points for a kernel with an outer vector axis; 1 without one."""
    if not kernel.outer or kernel.outer[-1].name != cpu_loops(kernel.schedule).vector:
        return 1
    return _registers(kernel, kernel.phases, kernel.outer[-1].size, lanes)


def phase_registers(kernel: Kernel, phase: Phase, lanes: int) -> int:
    """Return the registers of points for a phase whose last axis is the vector axis."""
    return _registers(kernel, (phase,), phase.axes[-1].size, lanes)


def phases_registers(kernel: Kernel, phases: Sequence[Phase], size: Size, lanes: int) -> int:
    """Return the registers of so many outer points for phases in place of the kernel's own."""
    return _registers(kernel, phases, size, lanes)


def expressions(phases: Sequence[Phase]) -> list[Expr]:
    """Return every distinct expression of the phases' values."""
    roots: list[Expr] = []
    for phase in phases:
        for statement in phase.statements:
            roots.extend((statement.value,) if isinstance(statement, Store) else statement.values)
    return list(walk(*roots))


def _registers(kernel: Kernel, phases: Sequence[Phase], size: Size, lanes: int) -> int:
    """Return the registers for phases along an axis of this size."""
    nodes, schedule = expressions(phases), cpu_loops(kernel.schedule)
    atoms = [atom for node in nodes for atom in indirects(node)]
    atoms += [atom for offset in _offsets(phases) for atom in indirects_in(offset)]
    # The lanes of an indirect index are computed for one register only.
    if any(_may_vary(atom, schedule.vector) for atom in atoms):
        return 1
    if any(_scans_by_definition(statement) for phase in phases for statement in phase.statements):
        return 1
    if schedule.unroll > 1:
        return schedule.unroll
    operations = [node for node in nodes if isinstance(node, Op)]
    if any(phase.axes and any(isinstance(s, Accumulate) for s in phase.statements) for phase in phases):
        # With outer lanes, each register multiplies the size of scratch arrays.
        inner = any(axis.name == schedule.vector for phase in phases for axis in phase.axes)
        registers = _REDUCING if inner or not kernel.scratch else 1
        registers = min(registers, _REDUCING if len(operations) <= _HEAVY_BODY else _REDUCING // 2)
        most = max(sum(isinstance(s, Accumulate) for s in phase.statements) for phase in phases if phase.axes)
        while registers > 1 and registers * most > _ACCUMULATORS:
            registers //= 2
    else:
        cost = sum(OPS[node.name].cost for node in operations)
        chained = LONG_CHAIN <= cost <= LONGEST_CHAIN or len(operations) <= _SHORT_BODY
        registers = CHAINS if chained else 1
    while registers > 1 and isinstance(size, int) and size < registers * lanes:
        registers //= 2
    return registers


def _may_vary(atom: Indirect, vector: str | None) -> bool:
    """Return True for an indirect index that may differ between lanes."""
    named = any(isinstance(node, Param | Scalar | NestedReduction) for node in walk(atom.value))
    return named or vector in atom.value.free_symbols


def _scans_by_definition(statement: Statement) -> bool:
    """Return True for a scan whose steps fill the registers with states of several values."""
    return isinstance(statement, ScanStore) and isinstance(statement.combiner, UserCombiner)


def _offsets(phases: Sequence[Phase]) -> Iterator[Size]:
    """Yield the offsets of the stores of phases."""
    for phase in phases:
        for statement in phase.statements:
            if isinstance(statement, Store):
                yield statement.offset
            elif not isinstance(statement, Accumulate):
                yield from (offset for _, offset in statement.targets)
