"""Memory over the steps of a plan: the bytes allocated at each, and the values that hold them at the peak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from litz_ir.loops import Ref
from litz_ir.plan import Allocate, Free, Placement, Plan, RegionStep, memory_root, touched_by
from litz_scheduler.analysis.cost import estimate
from litz_scheduler.arguments import require
from litz_scheduler.memory.slots import step_results
from litz_scheduler.memory.workspace import transient_bytes


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """A value that is alive at the peak, in memory of its own."""

    value: str
    """The name of the value; of values in one location, the one written last."""
    nbytes: int
    """Its bytes, symbolic sizes at their hints."""
    storage: str
    """The storage that it lies in; empty for a result of a call."""
    first: int
    """The step that first touches it."""
    last: int
    """The last step that touches it; the last step of the plan for a result of the plan."""


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """The memory of a run of a plan, beyond its inputs, constants and frozen results."""

    live: tuple[int, ...]
    """The bytes allocated while each step runs, in the order of the plan's steps."""
    transient: tuple[int, ...]
    """The bytes that each step allocates and frees itself, which ``live`` includes."""
    peak_step: int
    """The first step that computes something while the most bytes are allocated; -1 for a plan without steps."""
    owners: tuple[MemoryOwner, ...]
    """The values alive at that step, the largest first."""

    @property
    def peak(self) -> int:
        """The most bytes allocated at once."""
        return max(self.live, default=0)


def memory_timeline(plan: Plan, threads: int = 1) -> MemoryTimeline:
    """Return the modelled memory of a plan, step by step, symbolic sizes at their hints.

    Subplans count as memory of the steps that run them. ``threads`` is the number of threads on which routines of the
    host run; it determines the memory that some of them take.
    """
    require(Plan, plan, "the first argument")
    placements, symbols = dict(plan.buffers), plan.symbols
    within = transient_bytes(plan.steps, placements, plan.subplans, symbols, threads)
    sizes = {storage.name: estimate(storage.nbytes, symbols) for storage in plan.storages}
    allocated: dict[str, int] = {}
    live = []
    for position, step in enumerate(plan.steps):
        if isinstance(step, Allocate):
            allocated[step.storage] = sizes[step.storage]
        for name in step_results(step):
            if placements[name].base is None and placements[name].storage is None:
                allocated[name] = estimate(placements[name].nbytes, symbols)
        live.append(sum(allocated.values()) + within.get(position, 0))
        if isinstance(step, Free):
            allocated.pop(step.name, None)
    transient = tuple(within.get(position, 0) for position in range(len(live)))
    # An allocation reaches the peak before its values exist: the step after it is the one that needs them.
    peak = max(live, default=0)
    reached = (position for position, nbytes in enumerate(live) if nbytes == peak)
    peak_step = next((each for each in reached if not isinstance(plan.steps[each], Allocate)), len(live) - 1)
    owners = sorted(_owners(plan, placements, peak_step), key=lambda each: -each.nbytes)
    return MemoryTimeline(tuple(live), transient, peak_step, tuple(owners))


def _owners(plan: Plan, placements: Mapping[str, Placement], at: int) -> Iterator[MemoryOwner]:
    """Yield the values that are alive at a step; of values that take one another's location, the last one."""
    touched: dict[str, tuple[int, int]] = {}
    given = {each.name for each in (*plan.inputs, *plan.constants)}
    for position, step in enumerate(plan.steps):
        if isinstance(step, RegionStep) and step.kind == "frozen":
            given.update(step.results)
        for name in touched_by(step):
            root = memory_root(name, placements)
            first, _ = touched.get(root, (position, position))
            touched[root] = (first, position)
    for output in plan.outputs:
        if isinstance(output, Ref) and (root := memory_root(output.name, placements)) in touched:
            touched[root] = (touched[root][0], len(plan.steps) - 1)
    found: dict[tuple[str, str], MemoryOwner] = {}
    for name, (first, last) in touched.items():
        placement = placements.get(name)
        if placement is None or name in given or not first <= at <= last:
            continue
        nbytes = estimate(placement.nbytes, plan.symbols)
        storage = placement.storage or ""
        location = (storage, str(placement.offset)) if storage else ("", name)
        found[location] = MemoryOwner(name, nbytes, storage, first, last)
    yield from found.values()
