"""Launches left out of horizontal fusion for the memory that they would keep live.

A fused launch runs a kernel before launches that came before it. The buffers that the kernel writes are live earlier,
while those launches run; the buffers that it reads last are free earlier.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from litz_ir.plan import Kernel, Launch, Placement, Step, memory_root, written_by
from litz_ir.symbols import SymbolTable
from litz_scheduler.analysis.cost import estimate
from litz_scheduler.build_plan.horizontal_fusion import HorizontallyFused
from litz_scheduler.memory.planner import MemoryPlan
from litz_scheduler.memory.slots import LiveInterval, Slot


@dataclass(frozen=True, slots=True)
class FusionLimit:
    """A launch that is not fused into launches up to a position, for the memory that this would keep live."""

    before_position: int
    """The launch is fused only into launches after this position."""
    nbytes: int
    """The bytes that the launch itself would allocate earlier."""
    live_bytes: int
    """The bytes that would be live at once."""


@dataclass(frozen=True, slots=True)
class _Early:
    """A fused kernel whose buffers are allocated earlier than by a separate launch."""

    position: int
    """The position of the kernel's launch among the separate launches."""
    nbytes: int
    """The bytes allocated early, less those freed early."""
    first: int
    """The step of the fused launch, from which the bytes are live."""
    end: int
    """The step at which a separate launch would run."""


def early_buffer_limits(
    steps: Sequence[Step],
    made: HorizontallyFused,
    memory: MemoryPlan,
    kernels: Mapping[str, Kernel],
    placements: Mapping[str, Placement],
    symbols: SymbolTable,
    max_bytes: int,
) -> dict[int, FusionLimit]:
    """Return limits, by position in ``steps``, that bring each run of launches below ``max_bytes`` live bytes.

    Of the kernels whose buffers would be live early it takes as few as suffice, the largest first. ``made`` are the
    fused steps, ``memory`` is their memory plan.
    """
    intervals: dict[str, LiveInterval] = {each.name: each for each in memory.requests.results}
    intervals |= {value: slot for slot in memory.requests.slots for value in slot.values}
    firsts = [members[0] for members in made.members]
    over = {run: nbytes - max_bytes for run, nbytes in enumerate(memory.live_bytes) if nbytes > max_bytes}
    early: dict[int, list[_Early]] = {run: [] for run in over}
    for first, (_, *others) in enumerate(made.members):
        for position in others:
            end = bisect_left(firsts, position)
            runs = [run for run in range(memory.runs.of[first], memory.runs.of[end - 1] + 1) if run in over]
            if runs:
                extra = _early_bytes(steps[position], first, intervals, kernels, placements, symbols)
                for run in runs if extra > 0 else ():
                    early[run].append(_Early(position, extra, first, end))
    live_by_step = _live_bytes(len(made.steps), memory, symbols)
    found: dict[int, FusionLimit] = {}
    for run, excess in over.items():
        for each, last in _chosen(early[run], excess, memory.runs.span(run), live_by_step):
            found[each.position] = FusionLimit(firsts[last], each.nbytes, memory.live_bytes[run])
    return found


def _chosen(
    early: Sequence[_Early], excess: int, times: range, live: Sequence[int]
) -> Iterator[tuple[_Early, int]]:
    """Yield kernels to exclude for a run to need ``excess`` bytes less, and the last step that excludes each.

    A run allocates all its memory at once, so the steps of the run with most bytes live count. Where no kernel is
    early at those steps, values of one size do not reuse the memory of values of another, and all steps of the run
    count.
    """
    top = max(live[time] for time in times)
    covering: dict[int, list[_Early]] = {time: [] for time in times if live[time] > top - excess}
    ranked = sorted(early, key=lambda each: (-each.nbytes, -each.position))
    for each in ranked:
        for time in range(each.first, each.end):
            if time in covering:
                covering[time].append(each)
    # A kernel that is excluded from a step is excluded from all steps before it.
    groups = [(time, each, excess + live[time] - top) for time, each in reversed(covering.items()) if each]
    chosen: set[int] = set()
    for last, several, left in groups or [(times[-1], ranked, excess)]:
        left -= sum(each.nbytes for each in several if each.position in chosen)
        for each in several:
            if left > 0 and each.position not in chosen:
                chosen.add(each.position)
                left -= each.nbytes
                yield each, min(last, each.end - 1)


def live_buffer_limits(made: HorizontallyFused, memory: MemoryPlan, max_bytes: int) -> dict[int, FusionLimit]:
    """Return limits, by position, for every kernel fused in a run that has more than ``max_bytes`` live bytes.

    They exclude these kernels from every fused launch.
    """
    return {
        position: FusionLimit(position, 0, memory.live_bytes[run])
        for run, members in zip(memory.runs.of, made.members, strict=True)
        for position in (members if len(members) > 1 and memory.live_bytes[run] > max_bytes else ())
    }


def _live_bytes(count: int, memory: MemoryPlan, symbols: SymbolTable) -> list[int]:
    """Return the live bytes at each step."""
    changes = [0] * (count + 1)
    intervals: list[LiveInterval] = [*memory.requests.slots, *memory.requests.results]
    for each in intervals:
        nbytes = estimate(each.nbytes, symbols)
        changes[each.first] += nbytes
        changes[count if each.escapes else each.last + 1] -= nbytes
    return list(accumulate(changes[:count]))


def _early_bytes(
    step: Step,
    fused_step: int,
    intervals: Mapping[str, LiveInterval],
    kernels: Mapping[str, Kernel],
    placements: Mapping[str, Placement],
    symbols: SymbolTable,
) -> int:
    """Return the bytes that a kernel allocates in the fused step, less those that are free after it."""
    assert isinstance(step, Launch)
    taken = _distinct(written_by(step, kernels), placements)
    used = _distinct(step.buffers, placements)
    early = sum(
        estimate(interval.nbytes, symbols)
        for name in taken
        if isinstance(interval := intervals.get(name), Slot)
        and interval.first == fused_step
        and interval.values[0] == name
    )
    ended = {
        id(c): c for name in used if (c := intervals.get(name)) is not None and c.first < fused_step == c.last
    }
    return early - sum(estimate(each.nbytes, symbols) for each in ended.values() if not each.escapes)


def _distinct(names: Sequence[str], placements: Mapping[str, Placement]) -> Iterator[str]:
    """Yield the memory roots of buffers, each once."""
    yield from dict.fromkeys(memory_root(name, placements) for name in names)
