"""Graph partition: the steps of a plan to capture as CUDA graphs, which are all steps, none, or runs of them.

Each captured run becomes a subplan. Buffers made before the run are its inputs; buffers first used in it are its own,
and it returns those that are used after it. A subplan has memory of its own, in which no other buffer is placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import groupby

from litz_ir.errors import VerifyError
from litz_ir.loops import Ref, Value, references
from litz_ir.passes import PassContext
from litz_ir.plan import (
    Allocate,
    CallStep,
    Free,
    Launch,
    Placement,
    Plan,
    RegionStep,
    Step,
    Storage,
    alias_path,
    memory_root,
    touched_by,
    written_buffers,
)
from litz_ir.symbols import SymbolTable
from litz_scheduler.graph_partition.host_time import REPLAY, work_of
from litz_scheduler.graph_partition.obstacles import Obstacles, Routines, obstacle

VERIFIER = "litz_ir.verifier"
"""Module of the verifier, which programs that do not verify need not load."""

ELSEWHERE = "it does not run on a GPU"
"""The reason for a plan whose device captures nothing."""


@dataclass(frozen=True, slots=True)
class GraphPartition:
    """A plan and the choice of what to capture of it."""

    plan: Plan
    """The plan to run, in which captured runs of steps are subplans."""
    whole: bool = False
    """True where the plan is captured as a whole."""
    partitions: tuple[str, ...] = ()
    """The names of the subplans to capture."""
    summary: str = ""
    """One line for the user about the choice."""

    def verify(self) -> None:
        """Check the plan, and that the captured subplans are among its subplans; raises ``VerifyError``."""
        import_module(VERIFIER).verify(self.plan)
        missing = set(self.partitions) - {each.name for each in self.plan.subplans}
        if missing:
            raise VerifyError(
                f"no subplans {sorted(missing)}", check="partition.subplans", node=self.plan.name
            )


@dataclass(frozen=True, slots=True)
class PartitionGraph:
    """Capture a whole plan where that is possible, else the runs of its steps that can be captured.

    A capture must replace at least ``replay`` seconds of host time.
    """

    routines: Routines
    """The properties of extern routines."""
    replay: float = REPLAY
    """Host time of a replay in seconds."""
    name: str = "partition-graph"
    ulp: int = 0

    def apply(self, data: Plan, context: PassContext) -> GraphPartition:
        """Return the plan with the choice of what to capture."""
        machine = context.machine(data.device)
        if machine is None or not machine.graph_capture:
            return GraphPartition(data, summary=f"not replayed: {ELSEWHERE}")
        found = obstacle(data, self.routines)
        if not found:
            work = work_of(data.steps)
            if work.pays(self.replay):
                return GraphPartition(data, whole=True, summary="replayed as a CUDA graph")
            return GraphPartition(data, summary=f"not replayed: {work.reason(self.replay)}")
        partitioned = partition_plan(data, self.routines, self.replay)
        reasons = "; ".join(partitioned.reasons or (found,))
        if not partitioned.partitions:
            return GraphPartition(data, summary=f"not replayed: {reasons}")
        graphs = (
            "a CUDA graph"
            if len(partitioned.partitions) == 1
            else f"{len(partitioned.partitions)} CUDA graphs"
        )
        share = f"{partitioned.captured_steps} of {partitioned.steps} launches and calls"
        summary = f"{share} replayed as {graphs}; between them: {reasons}"
        return GraphPartition(partitioned.plan, partitions=partitioned.partitions, summary=summary)


@dataclass(frozen=True, slots=True)
class PartitionedPlan:
    """A plan divided into captured subplans and other steps."""

    plan: Plan
    """The plan, with a step for each subplan."""
    partitions: tuple[str, ...]
    """The names of the subplans that can be captured."""
    captured_steps: int
    """Launches and calls in these subplans."""
    steps: int
    """Launches and calls of the whole plan."""
    reasons: tuple[str, ...]
    """The obstacles of the other steps, and the reason against the longest run that does not pay."""


def partition_plan(plan: Plan, routines: Routines, replay: float = REPLAY) -> PartitionedPlan:
    """Make a subplan of each run of steps that can be captured and takes at least ``replay`` seconds.

    The seconds are host time. The plan computes the same results.
    """
    obstacles = Obstacles(plan, routines)
    aliased = frozenset(_aliased_results(plan))
    obstacles_found = [_obstacle(step, obstacles, aliased) for step in plan.steps]
    found = {run: work_of(plan.steps[run.start : run.stop]) for run in _runs(plan.steps, obstacles_found)}
    runs = [run for run, work in found.items() if work.pays(replay)]
    reasons = tuple(dict.fromkeys(filter(None, obstacles_found)))
    short = [work for work in found.values() if not work.pays(replay)]
    if short:
        reasons += (max(short, key=lambda work: work.seconds).reason(replay),)
    steps = work_of(plan.steps).steps
    if not runs:
        return PartitionedPlan(plan, (), 0, steps, reasons)
    partitioned = _Division(plan, runs, routines).partitioned()
    partitions = tuple(subplan.name for subplan in partitioned.subplans[len(plan.subplans) :])
    return PartitionedPlan(partitioned, partitions, sum(found[run].steps for run in runs), steps, reasons)


def _aliased_results(plan: Plan) -> Iterator[str]:
    """Yield results of calls that alias another buffer, and views of them.

    The plan does not know their addresses.
    """
    placements = dict(plan.buffers)
    results = (
        name for step in plan.steps if isinstance(step, CallStep) for name in step.results if name is not None
    )
    own = {name for name in results if placements[name].base is not None}
    for name in placements:
        if not own.isdisjoint(alias_path(name, placements)):
            yield name


def _obstacle(step: Step, obstacles: Obstacles, aliased: frozenset[str]) -> str:
    """Return the reason that a step cannot be part of a captured subplan; empty where it can."""
    if isinstance(step, Allocate | Free):
        return ""
    if isinstance(step, CallStep) and step.pairs:
        return f"{step.target} returns complex tensors"
    touched = next((name for name in touched_by(step) if name in aliased), "")
    return obstacles.of(step) or (
        f"{touched} aliases an argument in memory that a call returned" if touched else ""
    )


def _runs(steps: Sequence[Step], obstacles_found: Sequence[str]) -> Iterator[range]:
    """Yield the runs of steps without an obstacle, trimmed of allocations and frees at both ends."""
    for free, run in groupby(range(len(steps)), key=lambda at: not obstacles_found[at]):
        positions = [at for at in run if not isinstance(steps[at], Allocate | Free)]
        if free and positions:
            yield range(positions[0], positions[-1] + 1)


class _Division:
    """The division of a plan at ``runs``, with the first and last use of each buffer; -1 is before all steps."""

    def __init__(self, plan: Plan, runs: Sequence[range], routines: Routines) -> None:
        self.plan = plan
        self.mutates = routines.mutates
        self.runs = runs
        self.placements = dict(plan.buffers)
        self.first: dict[str, int] = {each.name: -1 for each in (*plan.inputs, *plan.constants)}
        self.last: dict[str, int] = {}
        for at, step in enumerate(plan.steps):
            for name in self._under(touched_by(step)):
                self.first.setdefault(name, at)
                self.last[name] = at
        for name in self._under(references(plan.outputs)):
            self.last[name] = len(plan.steps)
        for item in plan.inputs:
            # The caller may read an input after the call, unless it was donated.
            self.last[item.name] = (
                self.last.get(item.name, -1) if item.name in plan.donated else len(plan.steps)
            )

    def _under(self, names: Iterable[str]) -> Iterator[str]:
        """Yield buffers and all buffers that they are views of."""
        for name in names:
            yield from alias_path(name, self.placements)

    def _roots(self, names: Iterable[str]) -> list[str]:
        """Return the memory roots of buffers, each once."""
        return list(dict.fromkeys(memory_root(name, self.placements) for name in names))

    def partitioned(self) -> Plan:
        """Return the outer plan, with the captured runs among its subplans."""
        partitions = [self._subplan(number, run) for number, run in enumerate(self.runs)]
        buffers = {
            name: Placement(each.type)
            if each.storage is not None and self._run_of(name) is not None
            else each
            for name, each in self.plan.buffers
            if self._is_known(memory_root(name, self.placements))
        }
        storages = {each.storage for each in buffers.values()}
        steps = (step for step in self._steps(partitions) if self._is_needed(step, storages))
        return replace(
            self.plan,
            buffers=tuple(buffers.items()),
            storages=tuple(each for each in self.plan.storages if each.name in storages),
            steps=tuple(steps),
            subplans=(*self.plan.subplans, *partitions),
        )

    def _run_of(self, name: str) -> range | None:
        """Return the run that first uses a memory root; None for one first used outside all runs."""
        return next((run for run in self.runs if self.first.get(name, -1) in run), None)

    def _is_known(self, root: str) -> bool:
        """Return False for memory that is used in one captured run alone."""
        run = self._run_of(root)
        return run is None or self.last[root] >= run.stop

    def _is_needed(self, step: Step, storages: set[str | None]) -> bool:
        """Return False for the allocation or free of memory that the outer plan does not have."""
        match step:
            case Allocate():
                return step.storage in storages
            case Free():
                return step.name in storages or (step.name in self.placements and self._is_known(step.name))
        return True

    def _steps(self, partitions: Sequence[Plan]) -> Iterator[Step]:
        """Yield the steps between captured runs, and one step for each run."""
        at = 0
        for run, subplan in zip(self.runs, partitions, strict=True):
            inside = self.plan.steps[run.start : run.stop]
            yield from self.plan.steps[at : run.start]
            yield from (step for step in inside if isinstance(step, Allocate))
            arguments = tuple(Ref(item.name) for item in subplan.inputs)
            results = tuple(references(subplan.outputs))
            yield RegionStep("invoke", (subplan.name,), arguments, results)
            yield from (step for step in inside if isinstance(step, Free))
            at = run.stop
        yield from self.plan.steps[at:]

    def _subplan(self, number: int, run: range) -> Plan:
        """Return the steps of a run as a plan with its inputs, buffers and outputs."""
        inside = self.plan.steps[run.start : run.stop]
        touched = list(dict.fromkeys(name for step in inside for name in touched_by(step)))
        roots = self._roots(touched)
        given = [name for name in roots if self.first[name] < run.start]
        defined = [name for name in roots if self.first[name] >= run.start]
        wanted = [name for name in defined if self.last[name] >= run.stop]
        buffers = self._chains([*roots, *touched], given)
        own = _separate_outputs(buffers, wanted)
        storages = {each.storage for each in buffers.values() if each.storage is not None}
        names = {step.kernel for step in inside if isinstance(step, Launch)}
        returned = {buffers[name].storage for name in wanted} | set(wanted)
        memory = tuple(each for each in (*self.plan.storages, *own) if each.name in storages)
        steps = tuple(_with_memory(inside, memory, (storages | set(defined)) - returned))
        plan = replace(
            self.plan,
            name=f"{self.plan.name}_part_{number}",
            symbols=SymbolTable(),
            inputs=tuple(Value(name, self.placements[name].type) for name in given),
            constants=(),
            buffers=tuple(buffers.items()),
            storages=memory,
            kernels=tuple(kernel for kernel in self.plan.kernels if kernel.name in names),
            steps=steps,
            outputs=tuple(Ref(name) for name in wanted),
            decisions=(),
            subplans=(),
            donated=(),
        )
        written = written_buffers(plan, self.mutates)
        return replace(plan, donated=tuple(n for n in given if n in written and self.last[n] < run.stop))

    def _chains(self, names: Sequence[str], given: Sequence[str]) -> dict[str, Placement]:
        """Return the placements of buffers and of the buffers that they are views of."""
        found: dict[str, Placement] = {}
        for name in self._under(names):
            placement = self.placements[name]
            found[name] = Placement(placement.type) if name in given else placement
        return found


def _separate_outputs(buffers: dict[str, Placement], wanted: Sequence[str]) -> tuple[Storage, ...]:
    """Move outputs that share a storage into storages of their own.

    An output would otherwise keep the memory of other buffers live.
    """
    users = Counter(each.storage for each in buffers.values())
    storages = []
    for name in wanted:
        placement = buffers[name]
        if placement.storage is not None and users[placement.storage] > 1:
            storages.append(Storage(f"{name}_alone", placement.nbytes, placement.type.device))
            buffers[name] = Placement(placement.type, storages[-1].name)
    return tuple(storages)


def _with_memory(
    inside: Sequence[Step], memory: Sequence[Storage], freed: Container[str | None]
) -> Iterator[Step]:
    """Yield the steps of a captured run after its allocations; only what is in ``freed`` is freed."""
    yield from (Allocate(each.name) for each in memory)
    for step in inside:
        if not isinstance(step, Allocate) and not (isinstance(step, Free) and step.name not in freed):
            yield step
