"""Scheduling order: eager's order, unless another one has a clearly lower modelled peak memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from litz_ir.fused import Decision
from litz_ir.passes import PassContext
from litz_ir.plan import Step, memory_root, touched_by
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import estimate
from litz_scheduler.build_plan.forms import UnplacedPlan
from litz_scheduler.memory.liveness import escaping
from litz_scheduler.memory.slots import UNPLACED, placement_bytes, step_results
from litz_scheduler.order.candidates import WorkBlock, depth_first, freeing_first
from litz_scheduler.order.dependencies import dependencies

_MIN_PEAK_SAVING = 20
"""Another order must save at least a 20th of eager's peak, since the memory model is no more exact than that."""


@dataclass(frozen=True, slots=True)
class OrderSteps:
    """Order groups by the least modelled peak memory, in eager's order unless another is clearly better."""

    name: str = "order-steps"
    ulp: int = 0

    def apply(self, data: UnplacedPlan, context: PassContext) -> UnplacedPlan:
        """Return the steps in the chosen order, with their memory plan."""
        blocks = _blocks(data)
        sizes, escaped = _sizes(data), frozenset(escaping(data.fused.graph.outputs, data.placements))
        eager = tuple(range(len(blocks)))
        found = replace(data, memory=data.modelled())
        least = peak = found.modelled().peak
        decision = Decision("order", data.fused.graph.name, "eager", reasons.ORDER_EAGER, peak)
        tried = {eager}
        for name, order in (
            ("freeing first", freeing_first(blocks, sizes, escaped)),
            ("depth first", depth_first(blocks)),
        ):
            if order in tried:
                continue
            tried.add(order)
            other = _reordered(data, order)
            lower = other.modelled().peak
            if lower < least and _MIN_PEAK_SAVING * (peak - lower) >= peak:
                found, least = other, lower
                note = f"{peak} B in eager's"
                decision = Decision("order", data.fused.graph.name, name, reasons.ORDER_PEAK, lower, note)
        context.decide(decision)
        return found


def _blocks(data: UnplacedPlan) -> tuple[WorkBlock, ...]:
    """Return a work block for each group: the groups that it depends on, and the memory that it touches."""
    return tuple(
        WorkBlock(
            needed,
            frozenset(memory_root(name, data.placements) for step in steps for name in touched_by(step)),
        )
        for steps, needed in zip(_steps_by_group(data), dependencies(data.fused), strict=True)
    )


def _steps_by_group(data: UnplacedPlan) -> list[tuple[Step, ...]]:
    """Return the steps of each group."""
    return [data.steps[each.start : each.stop] for each in data.groups]


def _reordered(data: UnplacedPlan, order: tuple[int, ...]) -> UnplacedPlan:
    """Return the plan with its groups in another order, with its memory plan."""
    steps_of = _steps_by_group(data)
    steps = list(data.steps[: data.groups[0].start])
    groups = []
    for number in order:
        groups.append(range(len(steps), len(steps) + len(steps_of[number])))
        steps += steps_of[number]
    fused = replace(data.fused, groups=tuple(data.fused.groups[number] for number in order))
    reordered = replace(data, fused=fused, steps=tuple(steps), groups=tuple(groups), memory=None)
    return replace(reordered, memory=reordered.modelled())


def _sizes(data: UnplacedPlan) -> dict[str, int]:
    """Return the bytes of each buffer that the steps of groups allocate."""
    placements = data.placements
    owned = {name for name, placement in placements.items() if placement.storage == UNPLACED}
    for steps in _steps_by_group(data):
        for step in steps:
            owned.update(name for name in step_results(step) if placements[name].base is None)
    return {name: estimate(placement_bytes(placements[name]), data.fused.graph.symbols) for name in owned}
