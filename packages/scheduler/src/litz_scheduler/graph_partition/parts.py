"""Graph partition: what of a plan is captured as CUDA graphs. All of it, nothing, or parts: the longest runs of steps
that can be, each as a subplan.

A part takes the buffers that were there before it, and makes what is first touched in it. Of that it returns what
somebody wants afterwards, and so holds memory of its own: nothing that is made elsewhere lies in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from litz_ir.errors import VerifyError
from litz_ir.loops import Ref, Value, references, span
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
    alias_chain,
    memory_root,
    touched_by,
    verify_plan,
    written_buffers,
)
from litz_ir.symbols import SymbolTable, mul
from litz_ir.verifier import verify
from litz_scheduler.graph_partition.host_time import REPLAY, work_of
from litz_scheduler.graph_partition.obstacles import ELSEWHERE, Obstacles, Routines, obstacle


@dataclass(frozen=True, slots=True)
class GraphPartition:
    """``plan`` is what runs; it is recorded as a whole where ``whole`` is true, and so are its subplans ``parts``.
    ``says`` is a line for people."""

    plan: Plan
    whole: bool = False
    parts: tuple[str, ...] = ()
    says: str = ""


@verify.register
def verify_partition(data: GraphPartition) -> None:
    """Check the plan, and that the parts are among its subplans; raises ``VerifyError``."""
    verify_plan(data.plan)
    missing = set(data.parts) - {each.name for each in data.plan.subplans}
    if missing:
        raise VerifyError(f"no subplans {sorted(missing)}", check="partition.parts", node=data.plan.name)


@dataclass(frozen=True, slots=True)
class PartitionGraph:
    """Choose all of a plan where that can be captured, else the parts of it that can; each where it takes the host no
    less than the ``replay`` seconds of a replay. ``routines`` says what those that are called do."""

    routines: Routines
    replay: float = REPLAY
    name: str = "partition-graph"
    ulp: int = 0

    def apply(self, data: Plan, context: PassContext) -> GraphPartition:
        """What is captured."""
        found = obstacle(data, self.routines)
        if found == ELSEWHERE:
            return GraphPartition(data, says=f"not replayed: {found}")
        if not found:
            work = work_of(data.steps)
            if work.pays(self.replay):
                return GraphPartition(data, whole=True, says="replayed as a CUDA graph")
            return GraphPartition(data, says=f"not replayed: {work.says(self.replay)}")
        made = divided(data, self.routines, self.replay)
        reasons = "; ".join(made.reasons or (found,))
        if not made.parts:
            return GraphPartition(data, says=f"not replayed: {reasons}")
        graphs = "a CUDA graph" if len(made.parts) == 1 else f"{len(made.parts)} CUDA graphs"
        share = f"{made.recorded} of {made.steps} launches and calls"
        says = f"{share} replayed as {graphs}; between them: {reasons}"
        return GraphPartition(made.plan, parts=made.parts, says=says)


@dataclass(frozen=True, slots=True)
class Divided:
    """A plan whose subplans ``partitions`` may be recorded: ``captured_steps`` of its ``steps`` launches and calls
    are in them.
    ``reasons`` says why the others are not: what is in the way of some, and the longest of the runs for which it would
    not pay."""

    plan: Plan
    parts: tuple[str, ...]
    recorded: int
    steps: int
    reasons: tuple[str, ...]


def divided(plan: Plan, routines: Routines, replay: float = REPLAY) -> Divided:
    """The plan with a subplan for each run of steps that can be recorded and take the host no less than the
    ``replay`` seconds of a replay. It computes what the plan computes."""
    obstacles = Obstacles(plan, routines)
    shown = frozenset(_shown(plan))
    why = [_why(step, obstacles, shown) for step in plan.steps]
    found = {run: work_of(plan.steps[run.start : run.stop]) for run in _runs(plan.steps, why)}
    runs = [run for run, work in found.items() if work.pays(replay)]
    reasons = tuple(dict.fromkeys(filter(None, why)))
    short = [work for work in found.values() if not work.pays(replay)]
    if short:
        reasons += (max(short, key=lambda work: work.seconds).says(replay),)
    steps = work_of(plan.steps).steps
    if not runs:
        return Divided(plan, (), 0, steps, reasons)
    made = _Division(plan, runs, routines).made()
    parts = tuple(part.name for part in made.subplans[len(plan.subplans) :])
    return Divided(made, parts, sum(found[run].steps for run in runs), steps, reasons)


def _shown(plan: Plan) -> Iterator[str]:
    """What calls return of memory that another buffer's is, and views of that: where it begins a plan does not say."""
    placements = dict(plan.buffers)
    results = (
        name for step in plan.steps if isinstance(step, CallStep) for name in step.results if name is not None
    )
    own = {name for name in results if placements[name].base is not None}
    for name in placements:
        if not own.isdisjoint(alias_chain(name, placements)):
            yield name


def _why(step: Step, obstacles: Obstacles, shown: frozenset[str]) -> str:
    """What is in the way of a step in a part."""
    if isinstance(step, Allocate | Free):
        return ""
    if isinstance(step, CallStep) and step.pairs:
        return f"{step.target} returns complex tensors"
    touched = next((name for name in touched_by(step) if name in shown), "")
    return obstacles.of(step) or (
        f"{touched} is memory that a call returned of another tensor" if touched else ""
    )


def _runs(steps: Sequence[Step], why: Sequence[str]) -> Iterator[range]:
    """The runs of steps without a reason against them, from the first to the last that does something."""
    for free, run in groupby(range(len(steps)), key=lambda at: not why[at]):
        places = [at for at in run if not isinstance(steps[at], Allocate | Free)]
        if free and places:
            yield range(places[0], places[-1] + 1)


class _Division:
    """The plan that is divided at ``runs``, and where each of its buffers is made: before any step, or in one."""

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
            # Whoever gave a tensor may read it, unless it was given away.
            self.last[item.name] = (
                self.last.get(item.name, -1) if item.name in plan.donated else len(plan.steps)
            )

    def _under(self, names: Iterable[str]) -> Iterator[str]:
        """Buffers and all that they are views of."""
        for name in names:
            yield from alias_chain(name, self.placements)

    def _roots(self, names: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(memory_root(name, self.placements) for name in names))

    def made(self) -> Plan:
        """The outer plan, its parts among its subplans."""
        parts = [self._part(number, run) for number, run in enumerate(self.runs)]
        buffers = {
            name: Placement(each.type)
            if each.storage is not None and self._part_of(name) is not None
            else each
            for name, each in self.plan.buffers
            if self._is_known(memory_root(name, self.placements))
        }
        storages = {each.storage for each in buffers.values()}
        steps = (step for step in self._steps(parts) if self._is_wanted(step, storages))
        return replace(
            self.plan,
            buffers=tuple(buffers.items()),
            storages=tuple(each for each in self.plan.storages if each.name in storages),
            steps=tuple(steps),
            subplans=(*self.plan.subplans, *parts),
        )

    def _part_of(self, name: str) -> range | None:
        """The run that makes the memory that a buffer, which is no view, has for itself."""
        return next((run for run in self.runs if self.first.get(name, -1) in run), None)

    def _is_known(self, home: str) -> bool:
        """False for memory that is made in a part and gone after it."""
        run = self._part_of(home)
        return run is None or self.last[home] >= run.stop

    def _is_wanted(self, step: Step, storages: set[str | None]) -> bool:
        """False for a step about memory that the outer plan does not have."""
        match step:
            case Allocate():
                return step.storage in storages
            case Free():
                return step.name in storages or (step.name in self.placements and self._is_known(step.name))
        return True

    def _steps(self, parts: Sequence[Plan]) -> Iterator[Step]:
        """The steps between the parts, and one for each part."""
        at = 0
        for run, part in zip(self.runs, parts, strict=True):
            inside = self.plan.steps[run.start : run.stop]
            yield from self.plan.steps[at : run.start]
            yield from (step for step in inside if isinstance(step, Allocate))
            arguments = tuple(Ref(item.name) for item in part.inputs)
            results = tuple(references(part.outputs))
            yield RegionStep("invoke", (part.name,), arguments, results)
            yield from (step for step in inside if isinstance(step, Free))
            at = run.stop
        yield from self.plan.steps[at:]

    def _part(self, number: int, run: range) -> Plan:
        """The steps of a run as a plan: what it is given, what it makes, what it returns."""
        inside = self.plan.steps[run.start : run.stop]
        touched = list(dict.fromkeys(name for step in inside for name in touched_by(step)))
        homes = self._roots(touched)
        given = [name for name in homes if self.first[name] < run.start]
        made = [name for name in homes if self.first[name] >= run.start]
        wanted = [name for name in made if self.last[name] >= run.stop]
        buffers = self._chains([*homes, *touched], given)
        own = _alone(buffers, wanted)
        storages = {each.storage for each in buffers.values() if each.storage is not None}
        names = {step.kernel for step in inside if isinstance(step, Launch)}
        kept = {buffers[name].storage for name in wanted} | set(wanted)
        memory = tuple(each for each in (*self.plan.storages, *own) if each.name in storages)
        steps = tuple(_with_memory(inside, memory, (storages | set(made)) - kept))
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
        spent = written_buffers(plan, self.mutates)
        return replace(plan, donated=tuple(n for n in given if n in spent and self.last[n] < run.stop))

    def _chains(self, names: Sequence[str], given: Sequence[str]) -> dict[str, Placement]:
        """The placements of buffers and of what they are views of."""
        found: dict[str, Placement] = {}
        for name in self._under(names):
            placement = self.placements[name]
            found[name] = Placement(placement.type) if name in given else placement
        return found


def _alone(buffers: dict[str, Placement], wanted: Sequence[str]) -> tuple[Storage, ...]:
    """Place what is wanted, where it shares a storage, in one of its own: what leaves a part takes nothing with it."""
    tenants = Counter(each.storage for each in buffers.values())
    made = []
    for name in wanted:
        placement = buffers[name]
        if placement.storage is not None and tenants[placement.storage] > 1:
            type_ = placement.type
            nbytes = mul(span(type_.shape, type_.layout), type_.dtype.itemsize)
            made.append(Storage(f"{name}_alone", nbytes, type_.device))
            buffers[name] = Placement(type_, made[-1].name)
    return tuple(made)


def _with_memory(
    inside: Sequence[Step], memory: Sequence[Storage], freed: Container[str | None]
) -> Iterator[Step]:
    """The steps of a part, that which allocates before the others; only what is in ``freed`` is."""
    yield from (Allocate(each.name) for each in memory)
    for step in inside:
        if not isinstance(step, Allocate) and not (isinstance(step, Free) and step.name not in freed):
            yield step
