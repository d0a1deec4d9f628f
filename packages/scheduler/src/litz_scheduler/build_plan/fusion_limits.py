"""Loops that stay out of packs for the memory that they would hold there.

A loop in a pack runs before launches that it came after. What it writes is there earlier, and beside what these hold;
what it reads for the last time is free earlier.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from litz_ir.plan import Kernel, Launch, Placement, Step, memory_root, written_by
from litz_ir.symbols import SymbolTable
from litz_scheduler.build_plan.horizontal_fusion import HorizontallyFused
from litz_scheduler.cost import estimate
from litz_scheduler.memory.planner import MemoryPlan
from litz_scheduler.memory.slots import LiveInterval, Slot


@dataclass(frozen=True, slots=True)
class FusionLimit:
    """A loop that shares no launch ``before_position`` that at this position, beside which ``live_bytes`` bytes would
    be held at once;
    ``nbytes`` of them it would take early."""

    before_position: int
    nbytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class _Early:
    """A loop, by its position among launches alone, that holds ``nbytes`` from the ``first`` step on, where its pack
    is, to the one before ``end``, where it would come by itself."""

    position: int
    nbytes: int
    first: int
    end: int


def early_buffer_limits(
    steps: Sequence[Step],
    made: HorizontallyFused,
    memory: MemoryPlan,
    kernels: Mapping[str, Kernel],
    placements: Mapping[str, Placement],
    symbols: SymbolTable,
    most: int,
) -> dict[int, FusionLimit]:
    """Loops, by position among ``steps``, that are to stay apart since more than ``most`` bytes are held: of those that
    hold something early when that is as few as may do, the largest. The ``made`` packs have this ``memory``."""
    claims: dict[str, LiveInterval] = {each.name: each for each in memory.requests.results}
    claims |= {value: home for home in memory.requests.slots for value in home.values}
    firsts = [members[0] for members in made.members]
    over = {run: held - most for run, held in enumerate(memory.live_bytes) if held > most}
    early: dict[int, list[_Early]] = {run: [] for run in over}
    for first, (_, *others) in enumerate(made.members):
        for position in others:
            end = bisect_left(firsts, position)
            runs = [run for run in range(memory.runs.of[first], memory.runs.of[end - 1] + 1) if run in over]
            if runs:
                nbytes = _early(steps[position], first, claims, kernels, placements, symbols)
                for run in runs if nbytes > 0 else ():
                    early[run].append(_Early(position, nbytes, first, end))
    alive = _alive(len(made.steps), memory, symbols)
    found: dict[int, FusionLimit] = {}
    for run, excess in over.items():
        for each, last in _chosen(early[run], excess, memory.runs.span(run), alive):
            found[each.position] = FusionLimit(firsts[last], each.nbytes, memory.live_bytes[run])
    return found


def _chosen(
    early: Sequence[_Early], excess: int, times: range, alive: Sequence[int]
) -> Iterator[tuple[_Early, int]]:
    """The loops that are to stay apart for a run to hold ``excess`` bytes less, and the last step from which each does.
    Memory is taken once for all the run's ``times``, so that it counts when most is ``alive``. Where no loop is early
    then, values of one size have no use for the memory of those of another, and all times count."""
    top = max(alive[time] for time in times)
    covering: dict[int, list[_Early]] = {time: [] for time in times if alive[time] > top - excess}
    ranked = sorted(early, key=lambda each: (-each.nbytes, -each.position))
    for each in ranked:
        for time in range(each.first, each.end):
            if time in covering:
                covering[time].append(each)
    # What stays apart from a step does so from all before it.
    groups = [(time, each, excess + alive[time] - top) for time, each in reversed(covering.items()) if each]
    chosen: set[int] = set()
    for last, several, left in groups or [(times[-1], ranked, excess)]:
        left -= sum(each.nbytes for each in several if each.position in chosen)
        for each in several:
            if left > 0 and each.position not in chosen:
                chosen.add(each.position)
                left -= each.nbytes
                yield each, min(last, each.end - 1)


def live_buffer_limits(made: HorizontallyFused, memory: MemoryPlan, most: int) -> dict[int, FusionLimit]:
    """All loops, by position, of packs in runs that hold more than ``most`` bytes: they stay apart from one another."""
    return {
        position: FusionLimit(position, 0, memory.live_bytes[run])
        for run, members in zip(memory.runs.of, made.members, strict=True)
        for position in (members if len(members) > 1 and memory.live_bytes[run] > most else ())
    }


def _alive(count: int, memory: MemoryPlan, symbols: SymbolTable) -> list[int]:
    """By step, the bytes of what is wanted then."""
    changes = [0] * (count + 1)
    claims: list[LiveInterval] = [*memory.requests.slots, *memory.requests.results]
    for each in claims:
        nbytes = estimate(each.nbytes, symbols)
        changes[each.first] += nbytes
        changes[count if each.escapes else each.last + 1] -= nbytes
    return list(accumulate(changes[:count]))


def _early(
    step: Step,
    number: int,
    claims: Mapping[str, LiveInterval],
    kernels: Mapping[str, Kernel],
    placements: Mapping[str, Placement],
    symbols: SymbolTable,
) -> int:
    """The bytes that a loop takes in the step of that ``number``, less those that are free after it."""
    assert isinstance(step, Launch)
    taken = _distinct(written_by(step, kernels), placements)
    used = _distinct(step.buffers, placements)
    early = sum(
        estimate(claim.nbytes, symbols)
        for name in taken
        if isinstance(claim := claims.get(name), Slot) and claim.first == number and claim.values[0] == name
    )
    ended = {id(c): c for name in used if (c := claims.get(name)) is not None and c.first < number == c.last}
    return early - sum(estimate(each.nbytes, symbols) for each in ended.values() if not each.escapes)


def _distinct(names: Sequence[str], placements: Mapping[str, Placement]) -> Iterator[str]:
    """The memory that buffers are in."""
    yield from dict.fromkeys(memory_root(name, placements) for name in names)
