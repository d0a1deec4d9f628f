"""The stages of litz in order: a captured graph is lowered, scheduled, emitted, compiled and loaded."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from torch.fx import GraphModule

import litz_lowering
import litz_scheduler
from litz.artifact import Artifact, AtenFallback
from litz.cache.artifacts import ArtifactCache
from litz.cache.libraries import expected_libraries, launchers, libraries_of
from litz.debug import NO_INSTRUMENTS, Instruments, hooks_for
from litz.host.emit.frozen_copies import has_frozen_copies
from litz.host.runtime.externs import NO_ROUTINES
from litz.host.runtime.gpus import ONE_GPU, Gpus
from litz.loading import NO_CONSTANTS, Compiled, loader_of, not_loaded
from litz.reports.failures import Failures
from litz.settings import Config
from litz.stage_options import lowering_options, scheduler_options
from litz.targets import TargetSet
from litz.tuning.tuned_graph import Better, load_tuned
from litz_ir.errors import CompileTimeout, stage
from litz_ir.fused import Decision
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext, Timings
from litz_ir.plan import Plan, launches_on
from litz_ir.target import CopyingTarget, SourceUnit, Target
from litz_scheduler import SchedulerOptions

if TYPE_CHECKING:
    from litz_lowering import LoweredGraph

T = TypeVar("T")

DEMOTED = "a self-check found results of its kernel wrong"
"""Reason for the fallback of a demoted operation."""

_LOOP_PASSES = "litz.passes.loops"
"""Module that runs users' passes over loop graphs and plans; loaded where there are some."""

SERVICE = "litz.service.service"
"""Module of what all compilations of a process share; loaded by the first one."""

Job = tuple[SourceUnit, Target]
"""A source, and the target that compiles it."""


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """A graph as AOTAutograd captured it."""

    gm: GraphModule
    """The graph of ATen operations."""

    name: str
    """Name of the graph in messages and tracebacks."""

    frozen: frozenset[str] = frozenset()
    """Placeholders that are parameters, or otherwise likely equal from call to call."""

    donated: frozenset[str] = frozenset()
    """Placeholders that nothing reads after the call, so that their memory can be reused."""

    saved: frozenset[str] = frozenset()
    """Nodes whose results may be returned with other strides than eager's."""

    decisions: tuple[Decision, ...] = ()
    """Decisions of users' passes that changed the graph."""


@dataclass(slots=True)
class Progress:
    """Results of the stages so far, in one run of them."""

    lowered: LoweredGraph | None = None
    """Result of lowering."""

    plan: Plan | None = None
    """Result of scheduling."""

    artifact: Artifact | None = None
    """Result of compilation."""


Finish = Callable[["LoweredGraph", Artifact], Better | None]
"""Function called between compilation and loading: stores the artifact, and returns the search for a faster plan."""


class Scheme(Protocol):
    """A way to run the stages of a graph: where they run, and at which time."""

    def run(self, stages: Stages, progress: Progress, forced: frozenset[str], finish: Finish) -> Compiled:
        """Compile and load a graph, as :meth:`Stages.run` does; raise ``LitzError``."""


@dataclass(slots=True)
class Stages:
    """The stages of one captured graph, each timed; they raise no other exception than ``LitzError``.

    An instance belongs to one thread.
    """

    captured: CapturedGraph
    """The graph to compile."""

    config: Config
    """Options of the compilation."""

    cache: ArtifactCache
    """Cache of compiled sources."""

    targets: TargetSet
    """Targets of the graph's device kinds."""

    failures: Failures
    """Failure policy of the graph."""

    gpus: Gpus = ONE_GPU
    """Ordinals of the GPUs that the graph is on."""

    generated: frozenset[str] = frozenset()
    """Operations and nodes whose matmuls are generated, in addition to those that the options name."""

    demoted: frozenset[str] = frozenset()
    """Nodes that run as ATen since a self-check found their kernels wrong."""

    instruments: Instruments = NO_INSTRUMENTS
    """Hooks and limits that a debugging tool asks for."""

    parallel_units: int = field(init=False)
    """Most units compiled at the same time, in this process and its children; by default torch's number of threads."""

    key: str = ""
    """Key of the artifact in the cache; empty where it is not cached."""

    uncacheable: str = ""
    """Reason that the artifact cannot be cached; empty where it can."""

    expected: tuple[threading.Thread, ...] = ()
    """Threads that build libraries which the units will probably link."""

    loops: LoopGraph | None = None
    """The loop graph of the last lowering."""

    timings: Timings = field(default_factory=Timings)
    """Time of each stage so far, in seconds."""

    def __post_init__(self) -> None:
        self.parallel_units = self.config.compile_threads or torch.get_num_threads()

    def run(self, progress: Progress, forced: frozenset[str], finish: Finish) -> Compiled:
        """Compile and load the graph, with the nodes ``forced`` to run as ATen; ``progress`` receives the stages'
        results."""
        self.prepare()
        lowered = progress.lowered = self.lower(forced)
        self.expect(lowered.graph)
        progress.plan = self.schedule(lowered)
        plan = progress.plan = self.schedule_kernels(progress.plan)
        jobs = self.emit(plan)
        binaries = self.compile(jobs)
        artifact = progress.artifact = self.artifact(lowered, plan, jobs, binaries)
        better = finish(lowered, artifact)
        return self.load(artifact, lowered.constants, lowered.routines, better)

    def prepare(self) -> None:
        """Start the compiler processes that targets have, and to build what launches their kernels, unless the options
        allow one unit at a time."""
        with stage("target"):
            self.parallel_units = self.targets.prepare(self.config.compile_threads) or self.parallel_units
        if self.parallel_units > 1 and self.instruments.loads:
            # Loading needs it, and the compiler that builds it has a core of its own until then.
            launchers.prepare(self.targets.by_kind.values(), self.config)

    def lower(self, forced: frozenset[str]) -> LoweredGraph:
        """Lower the FX graph to a loop graph, with the nodes ``forced`` to run as ATen."""
        graph, options = self.captured, lowering_options(self.config, self.targets, forced)
        named = {"frozen": graph.frozen, "donated": graph.donated, "saved": graph.saved}
        hooks, fuel, timings = self.instruments.hooks, self.instruments.fuel, self.instruments.timings
        if fuel is not None:
            fuel.spent.clear()  # an earlier round of these stages failed
        context = PassContext({}, hooks=hooks, fuel=fuel, timings=timings)
        lowered = self.timed(
            "lower",
            lambda: litz_lowering.lower(graph.gm, name=graph.name, options=options, context=context, **named),
        )
        self.loops = lowered.graph
        return lowered

    def expect(self, graph: LoopGraph) -> None:
        """Begin to build the libraries that the kernels of a graph probably link, in threads of their own."""
        if self.parallel_units == 1 or self.expected:
            return
        with stage("target"):
            jobs = expected_libraries(graph, self.targets.by_kind.values())
        self.expected = tuple(threading.Thread(target=self._library, args=(job,)) for job in jobs)
        for each in self.expected:
            each.start()

    def schedule(self, lowered: LoweredGraph) -> Plan:
        """Schedule a loop graph: return its plan."""
        added, options, users = self.instruments, self.options(), self.cache.passes
        context = PassContext(self.targets.capabilities(), timings=added.timings, fuel=added.fuel)
        hooks = (*hooks_for(self.config), *added.hooks)
        passes = litz_scheduler.default_passes(options)
        if users.loops or users.plan:
            passes = import_module(_LOOP_PASSES).with_users_passes(passes, users)
        # What lowering makes is verified by its tests and, on request, by a hook.
        plan = self.timed(
            "schedule",
            lambda: litz_scheduler.schedule(
                lowered.graph, context, passes=passes, verified=True, hooks=hooks
            ),
        )
        return self.with_decisions(lowered, plan)

    def with_decisions(self, lowered: LoweredGraph, plan: Plan) -> Plan:
        """Return a plan with the decisions that were made before it was scheduled."""
        return replace(plan, decisions=(*self.captured.decisions, *lowered.decisions, *plan.decisions))

    def schedule_kernels(self, plan: Plan) -> Plan:
        """Return the plan with the schedules that targets decide."""
        return self.timed("schedule", lambda: self.targets.scheduled(plan))

    def emit(self, plan: Plan) -> tuple[Job, ...]:
        """Emit the sources of a plan's kernels."""
        jobs: list[Job] = []
        for kind, target in self.targets.by_kind.items():
            own = launches_on(kind, plan)
            if own.kernels:
                units = self.timed("emit", partial(target.emit, own))
                if isinstance(target, CopyingTarget) and has_frozen_copies(plan, kind):
                    units += target.copying_units()
                jobs += [(unit, target) for unit in units]
        return tuple(jobs)

    def compile(self, jobs: Sequence[Job]) -> tuple[Path, ...]:
        """Compile sources to binaries, in parallel, as far as other compilations of the process leave places."""
        start = time.perf_counter()
        shared = import_module(SERVICE).compile_service()
        shared.watch.add_units(len(jobs))

        def built(job: Job) -> Path:
            try:
                return self._binary(*job)
            finally:
                shared.watch.finish_unit()

        for each in self.expected:
            each.join()
        with stage("compile"), shared.budget.share(len(jobs), self.parallel_units) as count:
            with ThreadPoolExecutor(max_workers=count) as pool:
                list(pool.map(self._library, libraries_of(jobs)))
                # The longest first: none of them is left for the end, when other processes have nothing to do.
                order = sorted(range(len(jobs)), key=lambda number: -len(jobs[number][0].text))
                binaries = dict(zip(order, pool.map(built, [jobs[number] for number in order])))
        self.timings.add("compile", time.perf_counter() - start)
        return tuple(binaries[number] for number in range(len(jobs)))

    def load(
        self,
        artifact: Artifact,
        constants: Mapping[str, torch.Tensor] = NO_CONSTANTS,
        routines: Mapping[str, Callable[..., object]] = NO_ROUTINES,
        better: Better | None = None,
    ) -> Compiled:
        """Load an artifact as a callable, which is autotuned during its calls where the options say so."""
        if not self.instruments.loads:
            own = (self.targets, self.config, constants, routines, self.gpus, self.failures)
            return loader_of(artifact, self.captured.name, *own).compiled(not_loaded)
        given = (self.targets, self.config, self.cache, constants, routines, self.gpus)
        loaded = partial(
            load_tuned, artifact, self.captured.name, *given, better=better, failures=self.failures
        )
        made = self.timed("load", loaded)
        assert made.artifact is not None
        return replace(made, artifact=replace(made.artifact, seconds=dict(self.timings.seconds)))

    def options(self) -> SchedulerOptions:
        """Return the options of the scheduler for this graph."""
        allowed = scheduler_options(self.config, self.targets)
        return replace(allowed, generated_matmuls=allowed.generated_matmuls | self.generated)

    def artifact(
        self, lowered: LoweredGraph, plan: Plan, jobs: Sequence[Job], binaries: tuple[Path, ...]
    ) -> Artifact:
        """Return the results of all stages as data."""
        fallbacks = tuple(
            AtenFallback(f.target, DEMOTED if f.node in self.demoted else f.reason, f.origin.describe())
            for f in lowered.fallbacks
        )
        units = tuple(unit for unit, _ in jobs)
        return Artifact(
            self.key,
            plan,
            units,
            binaries,
            fallbacks,
            dict(self.timings.seconds),
            uncacheable=self.uncacheable,
        )

    def timed(self, name: str, work: Callable[[], T]) -> T:
        """Run a stage and add its time; every exception becomes a ``LitzError``."""
        start = time.perf_counter()
        try:
            with stage(name):
                return work()
        finally:
            self.timings.add(name, time.perf_counter() - start)

    def _library(self, job: Job) -> None:
        """Build a library where the cache has none; units whose library cannot be built are compiled without it."""
        with contextlib.suppress(Exception):
            self.cache.binary(*job)

    def _binary(self, unit: SourceUnit, target: Target) -> Path:
        """Return the binary of a unit; a timeout names the kernels of the unit."""
        try:
            return self.cache.binary(unit, target)
        except CompileTimeout as error:
            error.kernels = unit.kernels
            raise
