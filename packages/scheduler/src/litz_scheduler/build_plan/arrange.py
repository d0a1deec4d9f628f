"""The order of a plan's steps: eager's, unless the memory model finds one that holds clearly less at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from litz_ir.fused import Decision, FusedGraph
from litz_ir.loops import Output
from litz_ir.plan import Kernel, Placement, Plan, Step, root, touched_by, written_by
from litz_ir.symbols import SymbolTable
from litz_scheduler.build_plan.apart import Apart, held_beside, held_early
from litz_scheduler.build_plan.packs import Packed, Packs
from litz_scheduler.cost import estimate
from litz_scheduler.memory.homes import UNPLACED, memory_of, produced
from litz_scheduler.memory.liveness import escaping
from litz_scheduler.memory.place import MemoryPlan, place
from litz_scheduler.memory.workspace import transient_bytes
from litz_scheduler.order.candidates import Block, depth_first, freeing_first
from litz_scheduler.order.dependencies import dependencies

CLEARLY = 20
"""Another order than eager's must save at least this fraction of the peak: the model is not exact to more."""

ROUNDS = 2
"""How often loops that hold too much at once are taken out of packs, the largest first, before all are that run while
it is held."""


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
    tiled: frozenset[str]

    def place(self, steps: Sequence[Step]) -> MemoryPlan:
        """The memory of the steps in this order."""
        transient = transient_bytes(steps, self.placements, self.subplans, self.symbols, self.threads)
        return place(
            steps,
            self.placements,
            self.outputs,
            self.kernels,
            self.symbols,
            transient,
            self.tiled,
            self.donated,
        )


@dataclass(frozen=True, slots=True)
class Arranged:
    """Steps that are in order and placed, the kernels that they may launch, and what was decided."""

    memory: MemoryPlan
    kernels: Mapping[str, Kernel]
    decisions: tuple[Decision, ...]


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


def arrange(blocks: Blocks, around: Surroundings, packs: Packs, more: int) -> Arranged:
    """The steps in the order of least modelled peak, placed; eager's order unless another is clearly better. Launches
    become packs where that adds at most ``more`` bytes to the peak."""
    sizes, kept = _sizes(blocks, around), frozenset(escaping(around.outputs, around.placements))
    eager = tuple(range(len(blocks.nodes)))
    found = around.place(blocks.ordered(eager))
    peak = found.peak
    decision = Decision("order", around.name, "keep", "order.eager", peak)
    tried, best = {eager}, eager
    for name, order in (
        ("freeing first", freeing_first(blocks.nodes, sizes, kept)),
        ("depth first", depth_first(blocks.nodes)),
    ):
        if order in tried:
            continue
        tried.add(order)
        other = around.place(blocks.ordered(order))
        if other.peak < found.peak and CLEARLY * (peak - other.peak) >= peak:
            found, best = other, order
            decision = Decision("order", around.name, name, "order.peak", other.peak, f"{peak} B in eager's")
    made = _Packing(blocks.ordered(best), found, around, packs, more).run()
    return replace(made, decisions=(decision, *made.decisions))


class _Packing:
    """Packs in place of launches, which may hold ``more`` bytes at once than the launches do ``alone``."""

    def __init__(
        self, steps: Sequence[Step], alone: MemoryPlan, around: Surroundings, packs: Packs, more: int
    ) -> None:
        self._steps = steps
        self._alone = alone
        self._around = around
        self._packs = packs
        self._most = alone.peak + more

    def run(self) -> Arranged:
        """All packs, where they hold little more than the launches alone. Else loops stay apart from what they would
        hold too much beside; small ones over the same points may hold what they would as one kernel, and where nothing
        else helps they are all that share launches."""
        made = self._packs.of(self._steps)
        if not made.kernels:
            return Arranged(self._alone, self._around.kernels, self._alone.decisions)
        memory = self._place(made)
        if memory.peak <= self._most:
            return self._arranged(made, memory, {})
        merged = self._packs.of(self._steps, {position: position for position in range(len(self._steps))})
        least = self._place(merged) if merged.kernels else self._alone
        self._most = max(self._most, least.peak)
        apart: dict[int, Apart] = {}
        for number in range(ROUNDS + 1):
            if memory.peak <= self._most:
                return self._arranged(made, memory, apart)
            found = self._early(made, memory) if number < ROUNDS else {}
            for position, each in (found or held_beside(made, memory, self._most)).items():
                # What holds too much in a second place is of the kind that does so everywhere.
                apart[position] = replace(each, up_to=position) if position in apart else each
            made = self._packs.of(self._steps, {position: each.up_to for position, each in apart.items()})
            memory = self._place(made)
        if memory.peak <= self._most:
            return self._arranged(made, memory, apart)
        note = f"{least.peak} B without them"
        refused = Decision("plan", self._around.name, "leave", "pack.peak", memory.peak, note)
        decisions = (refused, *merged.decisions, *least.decisions)
        return Arranged(least, {**self._around.kernels, **merged.kernels}, decisions)

    def _place(self, made: Packed) -> MemoryPlan:
        kernels = {**self._around.kernels, **made.kernels}
        return replace(self._around, kernels=kernels).place(made.steps)

    def _early(self, made: Packed, memory: MemoryPlan) -> dict[int, Apart]:
        around = self._around
        return held_early(
            self._steps, made, memory, around.kernels, around.placements, around.symbols, self._most
        )

    def _arranged(self, made: Packed, memory: MemoryPlan, apart: Mapping[int, Apart]) -> Arranged:
        refused = (self._refusal(position, each) for position, each in sorted(apart.items()))
        decisions = (*refused, *made.decisions, *memory.decisions)
        return Arranged(memory, {**self._around.kernels, **made.kernels}, decisions)

    def _refusal(self, position: int, apart: Apart) -> Decision:
        """Why a launch is no loop of a pack, or of none before others."""
        note = f"{apart.held} B at once, {self._alone.peak} B without packs"
        if apart.up_to != position:
            note = f"beside {self._written(apart.up_to)}: {note}"
        return Decision("plan", self._written(position), "leave", "pack.peak", apart.nbytes, note)

    def _written(self, position: int) -> str:
        """The first value that a launch writes."""
        return written_by(self._steps[position], self._around.kernels)[0]


def _sizes(blocks: Blocks, around: Surroundings) -> dict[str, int]:
    """The bytes of all that the steps take memory for."""
    owned = {name for name, placement in around.placements.items() if placement.storage == UNPLACED}
    for part in blocks.steps:
        for step in part:
            owned.update(name for name in produced(step) if around.placements[name].base is None)
    return {name: estimate(memory_of(around.placements[name]), around.symbols) for name in owned}
