"""Scheduling order: eager's, unless the memory model finds one that holds clearly less at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from litz_ir.fused import Decision
from litz_ir.passes import PassContext
from litz_ir.plan import Step, memory_root, touched_by
from litz_scheduler.build_plan.forms import UnplacedPlan
from litz_scheduler.cost import estimate
from litz_scheduler.memory.liveness import escaping
from litz_scheduler.memory.slots import UNPLACED, placement_bytes, step_results
from litz_scheduler.order.candidates import WorkBlock, depth_first, freeing_first
from litz_scheduler.order.dependencies import dependencies

MIN_PEAK_SAVING = 20
"""Another order than eager's must save at least this fraction of the peak: the model is not exact to more."""


@dataclass(frozen=True, slots=True)
class OrderSteps:
    """Put groups in the order of least modelled peak: eager's order unless another is clearly better."""

    name: str = "order-steps"
    ulp: int = 0

    def apply(self, data: UnplacedPlan, context: PassContext) -> UnplacedPlan:
        """The steps in that order, with their memory."""
        blocks = _blocks(data)
        sizes, kept = _sizes(data), frozenset(escaping(data.fused.graph.outputs, data.placements))
        eager = tuple(range(len(blocks)))
        found = replace(data, memory=data.modelled())
        least = peak = found.modelled().peak
        decision = Decision("order", data.fused.graph.name, "eager", "order.eager", peak)
        tried = {eager}
        for name, order in (
            ("freeing first", freeing_first(blocks, sizes, kept)),
            ("depth first", depth_first(blocks)),
        ):
            if order in tried:
                continue
            tried.add(order)
            other = _reordered(data, order)
            held = other.modelled().peak
            if held < least and MIN_PEAK_SAVING * (peak - held) >= peak:
                found, least = other, held
                decision = Decision(
                    "order", data.fused.graph.name, name, "order.peak", held, f"{peak} B in eager's"
                )
        context.decide(decision)
        return found


def _blocks(data: UnplacedPlan) -> tuple[WorkBlock, ...]:
    """The groups with what must run before each, and the memory that each touches."""
    return tuple(
        WorkBlock(
            needed,
            frozenset(memory_root(name, data.placements) for step in part for name in touched_by(step)),
        )
        for part, needed in zip(_parts(data), dependencies(data.fused), strict=True)
    )


def _parts(data: UnplacedPlan) -> list[tuple[Step, ...]]:
    """The steps of each group."""
    return [data.steps[each.start : each.stop] for each in data.groups]


def _reordered(data: UnplacedPlan, order: tuple[int, ...]) -> UnplacedPlan:
    """The same groups in another order, with their memory."""
    parts = _parts(data)
    steps = list(data.steps[: data.groups[0].start])
    groups = []
    for number in order:
        groups.append(range(len(steps), len(steps) + len(parts[number])))
        steps += parts[number]
    fused = replace(data.fused, groups=tuple(data.fused.groups[number] for number in order))
    made = replace(data, fused=fused, steps=tuple(steps), groups=tuple(groups), memory=None)
    return replace(made, memory=made.modelled())


def _sizes(data: UnplacedPlan) -> dict[str, int]:
    """The bytes of all that the steps of groups take memory for."""
    placements = data.placements
    owned = {name for name, placement in placements.items() if placement.storage == UNPLACED}
    for part in _parts(data):
        for step in part:
            owned.update(name for name in step_results(step) if placements[name].base is None)
    return {name: estimate(placement_bytes(placements[name]), data.fused.graph.symbols) for name in owned}
