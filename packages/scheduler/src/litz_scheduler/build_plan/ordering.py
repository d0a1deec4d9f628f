"""Scheduling order: eager's order, unless another one has a clearly lower modelled peak memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from litz_ir.fused import Decision
from litz_ir.passes import PassContext
from litz_ir.plan import Step, memory_root, touched_by
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import estimate
from litz_scheduler.build_plan.forms import UnplacedPlan
from litz_scheduler.memory.liveness import escaping
from litz_scheduler.memory.slots import UNPLACED, step_results
from litz_scheduler.order.candidates import WorkBlock, depth_first, freeing_first
from litz_scheduler.order.dependencies import dependencies
from litz_scheduler.order.moves import Order, Peak, deferred, relieved

_MIN_PEAK_SAVING = 20
"""Another order must save at least a 20th of eager's peak, since the memory model is no more exact than that."""

_MIN_RELIEF = 500
"""An order that differs from eager's in a few groups must save a 500th: the model errs in both alike."""

_MOVES = 4
"""Most groups that are moved across the peak."""


@dataclass(frozen=True, slots=True)
class OrderSteps:
    """Order groups by the least modelled peak memory, in eager's order unless another is clearly better."""

    name: str = "order-steps"
    ulp: int = 0

    def apply(self, data: UnplacedPlan, context: PassContext) -> UnplacedPlan:
        """Return the steps in the chosen order, with their memory plan."""
        blocks = _blocks(data)
        sizes, escaped = _sizes(data), frozenset(escaping(data.fused.graph.outputs, data.placements))
        donated = frozenset(data.fused.graph.donated)
        eager = tuple(range(len(blocks)))
        found = replace(data, memory=data.modelled())
        least = peak = found.modelled().peak_with_donated
        decision = Decision("order", data.fused.graph.name, "eager", reasons.ORDER_EAGER, peak)
        tried = {eager}
        own = {name: nbytes for name, nbytes in sizes.items() if name not in donated}
        moves = [
            partial(move, blocks, sizes=sizes, escapes=escaped, donated=donated)
            for move in (relieved, deferred)
        ]
        for name, share, order in (
            ("freeing first", _MIN_PEAK_SAVING, freeing_first(blocks, own, escaped)),
            ("depth first", _MIN_PEAK_SAVING, depth_first(blocks)),
            ("relieved", _MIN_RELIEF, _relieved(found, moves)),
        ):
            if order in tried:
                continue
            tried.add(order)
            other = _reordered(data, order)
            lower = other.modelled().peak_with_donated
            if lower < least and share * (peak - lower) >= peak:
                found, least = other, lower
                note = f"{peak} B in eager's"
                decision = Decision("order", data.fused.graph.name, name, reasons.ORDER_PEAK, lower, note)
        context.decide(decision)
        return found


def _relieved(data: UnplacedPlan, moves: Sequence[Callable[..., Order | None]]) -> Order:
    """Return eager's order, with blocks moved across the one at the peak while that lowers it.

    A move takes an ``order`` and its ``peak``; the first one that helps is taken.
    """
    order, found = tuple(range(len(data.groups))), data
    for _ in range(_MOVES):
        least, peak = found.modelled().peak_with_donated, _peak(found)
        tried = (move(order=order, peak=peak) for move in moves)
        others = ((moved, _reordered(data, moved)) for moved in tried if moved is not None)
        better = next((each for each in others if each[1].modelled().peak_with_donated < least), None)
        if better is None:
            break
        order, found = better
    return order


def _peak(data: UnplacedPlan) -> Peak:
    """Return the groups in the run of steps with the most bytes allocated."""
    memory, groups = data.modelled(), data.groups
    if not memory.bytes_with_donated or not groups:
        return Peak(0, 0, 1)
    number = memory.bytes_with_donated.index(memory.peak_with_donated)
    span = memory.runs.span(number)
    first = next((k for k, group in enumerate(groups) if group.stop > span.start), 0)
    last = next((k for k in range(len(groups) - 1, first, -1) if groups[k].start < span.stop), first)
    following = memory.runs.span(number + 1).stop if number + 1 < len(memory.runs) else len(data.steps)
    after = next((k for k in range(last + 1, len(groups)) if groups[k].start >= following), len(groups))
    return Peak(first, last, after)


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
    """Return the bytes of each buffer that the steps of groups allocate, and of donated inputs."""
    placements = data.placements
    owned = {name for name, placement in placements.items() if placement.storage == UNPLACED}
    owned.update(data.fused.graph.donated)
    for steps in _steps_by_group(data):
        for step in steps:
            owned.update(name for name in step_results(step) if placements[name].base is None)
    return {name: estimate(placements[name].nbytes, data.fused.graph.symbols) for name in owned}
