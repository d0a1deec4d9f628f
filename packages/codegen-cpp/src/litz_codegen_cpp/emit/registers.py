"""How many registers a vector loop works on side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from litz_ir.plan import Accumulate, Kernel, Phase, Store, cpu_loops
from litz_ir.scalar import OPS, Expr, Op, indirects, indirects_in, walk
from litz_ir.symbols import Size

REDUCING = 4
"""For reductions, whose additions wait for one another; half of it for bodies above :data:`HEAVY_BODY`."""

HEAVY_BODY = 40
CHAINS, LONG_CHAIN, LONGEST_CHAIN = 4, 20, 100
"""Registers for other bodies of such costs (in additions): one chain of arithmetic hides the other's latency."""

SHORT_BODY = 8
"""Bodies of at most so many operations wait for memory alone: as many registers keep more loads on their way."""


def outer_registers(kernel: Kernel, lanes: int) -> int:
    """For a kernel whose vector axis is an outer one: registers of outer points; 1 where there is no such axis."""
    if not kernel.outer or kernel.outer[-1].name != cpu_loops(kernel.schedule).vector:
        return 1
    return _registers(kernel, kernel.phases, kernel.outer[-1].size, lanes)


def phase_registers(kernel: Kernel, phase: Phase, lanes: int) -> int:
    """For a phase whose last axis is the vector axis: registers of its points."""
    return _registers(kernel, (phase,), phase.axes[-1].size, lanes)


def expressions(phases: Sequence[Phase]) -> list[Expr]:
    """Every distinct expression of the phases' values."""
    roots: list[Expr] = []
    for phase in phases:
        for statement in phase.statements:
            roots.extend((statement.value,) if isinstance(statement, Store) else statement.values)
    return list(walk(*roots))


def _registers(kernel: Kernel, phases: Sequence[Phase], size: Size, lanes: int) -> int:
    nodes = expressions(phases)
    # Lanes of an indirect index belong to one register.
    if any(True for node in nodes for _ in indirects(node)) or any(indirects_in(x) for x in _offsets(phases)):
        return 1
    schedule = cpu_loops(kernel.schedule)
    if schedule.unroll > 1:
        return schedule.unroll
    operations = [node for node in nodes if isinstance(node, Op)]
    if any(phase.axes and any(isinstance(s, Accumulate) for s in phase.statements) for phase in phases):
        # Locals of a kernel with outer lanes are as many times larger.
        inner = any(axis.name == schedule.vector for phase in phases for axis in phase.axes)
        parts = REDUCING if inner or not kernel.scratch else 1
        parts = min(parts, REDUCING if len(operations) <= HEAVY_BODY else REDUCING // 2)
    else:
        cost = sum(OPS[node.name].cost for node in operations)
        chained = LONG_CHAIN <= cost <= LONGEST_CHAIN or len(operations) <= SHORT_BODY
        parts = CHAINS if chained else 1
    while parts > 1 and isinstance(size, int) and size < parts * lanes:
        parts //= 2
    return parts


def _offsets(phases: Sequence[Phase]) -> Iterator[Size]:
    for phase in phases:
        for statement in phase.statements:
            if isinstance(statement, Store):
                yield statement.offset
            elif not isinstance(statement, Accumulate):
                yield from (offset for _, offset in statement.targets)
