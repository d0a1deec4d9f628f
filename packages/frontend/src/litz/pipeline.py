"""The stages of litz in order: a captured graph is lowered, scheduled, emitted, compiled and loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch.fx import GraphModule

from litz.artifact import Artifact, AtenFallback
from litz.cache.artifacts import ArtifactCache
from litz.debug import hooks_for
from litz.failures import Failures
from litz.host.externs import NO_ROUTINES
from litz.host.gpus import ONE_GPU, Gpus
from litz.loading import NO_CONSTANTS, Compiled
from litz.settings import Config
from litz.stage_options import lowering_options, scheduler_options
from litz.targets import TargetSet, launches_on
from litz.tuning.tuned_graph import Better, load_tuned
from litz_ir.errors import CompileTimeout, stage
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext, Timings
from litz_ir.plan import Plan
from litz_ir.target import SourceUnit, Target
from litz_lowering import LoweredGraph, lower
from litz_scheduler import SchedulerOptions, schedule

T = TypeVar("T")

DEMOTED = "a self-check found results of its kernel wrong"
"""Why a demoted operation runs as ATen."""

Job = tuple[SourceUnit, Target]
"""A source, and the target that compiles it."""


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """A graph as AOTAutograd captured it.

    ``held`` names the placeholders that are parameters, or otherwise likely the same call after call; ``donated`` those
    that nobody reads afterwards; ``saved`` the nodes whose results may be returned with other strides than eager's.
    """

    gm: GraphModule
    name: str
    held: frozenset[str] = frozenset()
    donated: frozenset[str] = frozenset()
    saved: frozenset[str] = frozenset()


@dataclass(slots=True)
class Progress:
    """The results of the stages so far, in one run of them."""

    lowered: LoweredGraph | None = None
    plan: Plan | None = None
    artifact: Artifact | None = None


Finish = Callable[[LoweredGraph, Artifact], Better | None]
"""Called between compilation and loading: it keeps the artifact, and gives what looks for a better one later."""


@dataclass(slots=True)
class Stages:
    """The stages of one captured graph, each timed. They raise ``LitzError`` alone. The instance belongs to one thread.

    ``gpus`` are those that the graph is on, ``products`` those that are generated, ``demoted`` the nodes that run as
    ATen since a self-check found their kernels wrong. ``side_by_side`` is how many units are compiled at a time.
    ``key`` is what the artifact is kept by, and ``unkept`` why it cannot be. ``loops`` is the graph as it was lowered
    last.
    """

    captured: CapturedGraph
    config: Config
    cache: ArtifactCache
    targets: TargetSet
    failures: Failures
    gpus: Gpus = ONE_GPU
    products: frozenset[str] = frozenset()
    demoted: frozenset[str] = frozenset()
    side_by_side: int = field(default_factory=torch.get_num_threads)
    key: str = ""
    unkept: str = ""
    loops: LoopGraph | None = None
    timings: Timings = field(default_factory=Timings)

    def run(self, progress: Progress, left: frozenset[str], finish: Finish) -> Compiled:
        """The graph as a callable, with these nodes ``left`` to ATen; ``progress`` takes what the stages give."""
        lowered = progress.lowered = self.lower(left)
        progress.plan = self.schedule(lowered)
        plan = progress.plan = self.schedule_kernels(progress.plan)
        jobs = self.emit(plan)
        binaries = self.compile(jobs)
        artifact = progress.artifact = self.artifact(lowered, plan, jobs, binaries)
        better = finish(lowered, artifact)
        return self.load(artifact, lowered.constants, lowered.routines, better)

    def lower(self, left: frozenset[str]) -> LoweredGraph:
        """FX to loops, with these nodes ``left`` to ATen."""
        graph, options = self.captured, lowering_options(self.config, self.targets, left)
        named = {"held": graph.held, "donated": graph.donated, "saved": graph.saved}
        lowered = self.timed("lower", lambda: lower(graph.gm, name=graph.name, options=options, **named))
        self.loops = lowered.graph
        return lowered

    def schedule(self, lowered: LoweredGraph) -> Plan:
        """Loops to a plan."""
        context, hooks = PassContext(self.targets.capabilities()), hooks_for(self.config)
        plan = self.timed("schedule", lambda: schedule(lowered.graph, context, self.options(), hooks=hooks))
        return replace(plan, decisions=(*lowered.decisions, *plan.decisions))

    def schedule_kernels(self, plan: Plan) -> Plan:
        """A plan to one whose kernels have all that targets decide about them."""
        return self.timed("schedule", lambda: self.targets.scheduled(plan))

    def emit(self, plan: Plan) -> tuple[Job, ...]:
        """A plan to sources."""
        jobs: list[Job] = []
        for kind, target in self.targets.by_kind.items():
            own = launches_on(kind, plan)
            if own.kernels:
                units = self.timed("emit", partial(target.emit, own))
                jobs += [(unit, target) for unit in units]
        return tuple(jobs)

    def compile(self, jobs: Sequence[Job]) -> tuple[Path, ...]:
        """Sources to binaries, side by side."""
        start = time.perf_counter()
        with stage("compile"):
            with ThreadPoolExecutor(max_workers=max(1, min(len(jobs), self.side_by_side))) as pool:
                binaries = tuple(pool.map(lambda job: self._binary(*job), jobs))
        self.timings.add("compile", time.perf_counter() - start)
        return binaries

    def load(
        self,
        artifact: Artifact,
        constants: Mapping[str, torch.Tensor] = NO_CONSTANTS,
        routines: Mapping[str, Callable[..., object]] = NO_ROUTINES,
        better: Better | None = None,
    ) -> Compiled:
        """An artifact to a callable, tuned while it is called where the options ask for that."""
        given = (self.targets, self.config, self.cache, constants, routines, self.gpus)
        loaded = partial(
            load_tuned, artifact, self.captured.name, *given, better=better, failures=self.failures
        )
        made = self.timed("load", loaded)
        assert made.artifact is not None
        return replace(made, artifact=replace(made.artifact, seconds=dict(self.timings.seconds)))

    def options(self) -> SchedulerOptions:
        """What the scheduler may do."""
        allowed = scheduler_options(self.config, self.targets)
        return replace(allowed, generated_matmuls=allowed.generated_matmuls | self.products)

    def artifact(
        self, lowered: LoweredGraph, plan: Plan, jobs: Sequence[Job], binaries: tuple[Path, ...]
    ) -> Artifact:
        """All that was made, as data."""
        left = tuple(
            AtenFallback(f.target, DEMOTED if f.node in self.demoted else f.reason, f.origin.describe())
            for f in lowered.fallbacks
        )
        units = tuple(unit for unit, _ in jobs)
        return Artifact(
            self.key, plan, units, binaries, left, dict(self.timings.seconds), uncacheable=self.unkept
        )

    def timed(self, name: str, work: Callable[[], T]) -> T:
        """What a stage gives, which raises ``LitzError`` alone."""
        start = time.perf_counter()
        try:
            with stage(name):
                return work()
        finally:
            self.timings.add(name, time.perf_counter() - start)

    def _binary(self, unit: SourceUnit, target: Target) -> Path:
        try:
            return self.cache.binary(unit, target)
        except CompileTimeout as error:
            error.kernels = unit.kernels
            raise
