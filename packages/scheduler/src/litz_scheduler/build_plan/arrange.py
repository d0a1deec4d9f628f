"""The order of a plan's steps: eager's, unless the memory model finds one that holds clearly less at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from litz_ir.fused.decision import Decision
from litz_ir.fused.group import FusedGraph
from litz_ir.loops.nodes import Output
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Placement, Plan, Step
from litz_ir.plan.uses import root, touched_by
from litz_ir.symbols.table import SymbolTable
from litz_scheduler.cost.traffic import estimate
from litz_scheduler.memory.homes import UNPLACED, memory_of, produced
from litz_scheduler.memory.liveness import escaping
from litz_scheduler.memory.place import MemoryPlan, place
from litz_scheduler.memory.transient import transient_bytes
from litz_scheduler.order.candidates import Block, depth_first, freeing_first
from litz_scheduler.order.dependencies import dependencies

CLEARLY = 20
"""Another order than eager's must save at least this fraction of the peak: the model is not exact to more."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What places steps in memory besides the steps: see :func:`litz_scheduler.memory.place.place`."""

    name: str
    placements: Mapping[str, Placement]
    outputs: tuple[Output, ...]
    donated: tuple[str, ...]
    kernels: Mapping[str, Kernel]
    symbols: SymbolTable
    subplans: Sequence[Plan]
    threads: int

    def place(self, steps: Sequence[Step]) -> MemoryPlan:
        """The memory of the steps in this order."""
        transient = transient_bytes(steps, self.placements, self.subplans, self.symbols, self.threads)
        return place(
            steps, self.placements, self.outputs, self.kernels, self.symbols, transient, self.donated
        )


@dataclass(frozen=True, slots=True)
class Blocks:
    """The steps that come before all groups, and those of each group with what must run before it."""

    first: tuple[Step, ...]
    steps: tuple[tuple[Step, ...], ...]
    nodes: tuple[Block, ...]

    def ordered(self, order: Sequence[int]) -> list[Step]:
        """All steps, the groups in this order."""
        return [*self.first, *(step for number in order for step in self.steps[number])]


def blocks_of(
    fused: FusedGraph, steps: Sequence[Step], starts: Sequence[int], placements: Mapping[str, Placement]
) -> Blocks:
    """The steps by group; ``starts`` gives the position of each group's first."""
    ends = (*starts[1:], len(steps))
    parts = tuple(tuple(steps[start:end]) for start, end in zip(starts, ends, strict=False))
    nodes = (
        Block(needed, frozenset(root(name, placements) for step in part for name in touched_by(step)))
        for part, needed in zip(parts, dependencies(fused), strict=True)
    )
    return Blocks(tuple(steps[: starts[0]] if starts else steps), parts, tuple(nodes))


def arrange(blocks: Blocks, around: Surroundings) -> tuple[MemoryPlan, tuple[Decision, ...]]:
    """The steps in the order of least modelled peak, placed; eager's order unless another is clearly better."""
    sizes, kept = _sizes(blocks, around), frozenset(escaping(around.outputs, around.placements))
    eager = tuple(range(len(blocks.nodes)))
    found = around.place(blocks.ordered(eager))
    peak = found.peak
    decision = Decision("order", around.name, "keep", "order.eager", peak)
    tried = {eager}
    for name, order in (
        ("freeing first", freeing_first(blocks.nodes, sizes, kept)),
        ("depth first", depth_first(blocks.nodes)),
    ):
        if order in tried:
            continue
        tried.add(order)
        other = around.place(blocks.ordered(order))
        if other.peak < found.peak and CLEARLY * (peak - other.peak) >= peak:
            found = other
            decision = Decision("order", around.name, name, "order.peak", other.peak, f"{peak} B in eager's")
    return found, (decision, *found.decisions)


def _sizes(blocks: Blocks, around: Surroundings) -> dict[str, int]:
    """The bytes of all that the steps take memory for."""
    owned = {name for name, placement in around.placements.items() if placement.storage == UNPLACED}
    for part in blocks.steps:
        for step in part:
            owned.update(name for name in produced(step) if around.placements[name].base is None)
    return {name: estimate(memory_of(around.placements[name]), around.symbols) for name in owned}
