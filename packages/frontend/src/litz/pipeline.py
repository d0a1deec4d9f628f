"""The stages of litz in order: from an ATen graph to a callable."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.fx import GraphModule

from litz.artifact import Artifact, LeftToAten
from litz.cache.artifacts import ArtifactCache
from litz.debug import hooks_for
from litz.failures import Failures, Source
from litz.host.devices import first_gpu
from litz.host.externs import NO_ROUTINES
from litz.host.gpus import ONE_GPU, Gpus, gpus_among
from litz.host.libraries import has_convolutions, linear_flops
from litz.host.load import HostFunction
from litz.host.precision import f32_convolutions, f32_products, tell_of_bf16
from litz.loading import Compiled, Loader, loader_of
from litz.results import may_replace
from litz.settings import Config, forced
from litz.targets import TargetSet, launches_on, targets_for
from litz.timing import Sample
from litz.tuning.choices import compared
from litz.tuning.products import better_generated, may_be_generated
from litz.tuning.tuned import Better, load, with_tuning
from litz_ir.device import CPU
from litz_ir.errors import CodegenError, CompilerNotFound, CompileTimeout, LitzError, NotCompiled, stage
from litz_ir.loops import LoopGraph
from litz_ir.passes import Hook, PassContext, Timings
from litz_ir.plan import Kernel, Launch, Plan, origins_by_part, parts_alone, plans_in
from litz_ir.target import PreparedTarget, SourceUnit, Target
from litz_lowering import LoweredGraph, LoweringOptions, gpus_of, lower
from litz_scheduler import SchedulerOptions, schedule

log = logging.getLogger("litz")

T = TypeVar("T")

ROUNDS = 3
"""How often a graph is lowered again with what failed left to ATen, before all of it is."""

EVERYTHING = "*"
"""Stands for a graph's every operation among those that are demoted."""

DEMOTED = "a self-check found results of its kernel wrong"
"""Why a demoted operation runs as ATen."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a graph before it is compiled: its ``key`` and that of what was ``timed``, both empty where it
    is not kept; the ``artifact`` that was; the products that were ``chosen``, None where nobody has tried. ``unkept``:
    why it cannot be kept, where that is so by what a program registered."""

    key: str
    timed: str
    artifact: Artifact | None
    chosen: frozenset[str] | None
    unkept: str = ""

    @property
    def suffices(self) -> bool:
        """True where the artifact is all that is wanted."""
        found = self.artifact
        return (
            self.chosen is not None
            and found is not None
            and not any(p.constants for p in plans_in(found.plan))
        )


@dataclass(slots=True)
class _Round:
    """How far a round came."""

    lowered: LoweredGraph | None = None
    plan: Plan | None = None
    artifact: Artifact | None = None


@dataclass(slots=True)
class Compilation:
    """One graph on its way: the stages, in order. The instance belongs to one thread.

    ``held`` names the placeholders that are parameters, or otherwise likely the same call after call; ``donated`` those
    that nobody reads afterwards, ``saved`` the nodes whose results may be returned with other strides than eager's.
    ``side_by_side`` is how many units are built at a time. ``products`` are those that are generated. ``gpus`` are
    those that the graph is on. ``loops`` is the graph as it was lowered last. ``demoted`` names the nodes that run as
    ATen since a self-check found the kernels that computed them wrong; ``record`` is the key of their record.
    """

    gm: GraphModule
    name: str
    config: Config
    cache: ArtifactCache
    held: frozenset[str] = frozenset()
    donated: frozenset[str] = frozenset()
    saved: frozenset[str] = frozenset()
    demoted: frozenset[str] = frozenset()
    timings: Timings = field(default_factory=Timings)
    side_by_side: int = field(default_factory=torch.get_num_threads)
    products: frozenset[str] = frozenset()
    gpus: Gpus = ONE_GPU
    loops: LoopGraph | None = None
    record: str = ""
    failures: Failures = field(init=False)

    def __post_init__(self) -> None:
        source = Source(self.gm, self.name, False, self.held, self.donated, self.saved)
        self.failures = self.cache.failures.of(source)

    def run(self) -> Compiled:
        """Compile the graph, or fetch it; degrade to ATen what fails, as ``config.fallback`` says."""
        tell_of_bf16(tensors_of(self.gm))
        devices = gpus_of(self.gm)
        self.gpus = gpus_among(devices)
        with first_gpu(devices):
            return self._run()

    def _run(self) -> Compiled:
        with stage("target"):
            targets = targets_for(device_kinds(self.gm), self.config)
        known = self._known(targets)
        if EVERYTHING in self.demoted:
            raise NotCompiled(f"a self-check found results of {self.name} wrong")
        if known.artifact is not None and known.suffices:
            try:
                return self._finish(known.artifact, {}, targets)
            except Exception as error:
                self.failures.report(error, "load", f"what was kept of {self.name} is compiled anew")
                self.cache.forget(known.artifact)
                known = replace(known, artifact=None)
        with stage("target"):
            for target in targets.by_kind.values():
                if isinstance(target, PreparedTarget):
                    self.side_by_side = target.prepare()
        return self._rounds(targets, known)

    def _known(self, targets: TargetSet) -> Known:
        """What the cache holds; nothing where it fails."""
        attempt = self.failures.attempt
        unkept = attempt("cache", lambda: self.cache.unkept(targets), "", f"{self.name} is not kept on disk")
        if unkept:
            return Known("", "", None, frozenset(), unkept)
        # What a backward is given changes with how its forward is planned, and says nothing of products.
        timed = self.record = attempt(
            "cache",
            lambda: self._key(targets, frozenset(), frozenset()),
            "",
            f"{self.name} is not kept on disk",
        )
        if timed:
            self.demoted |= attempt("cache", self._on_record, frozenset[str](), "nothing is demoted")
        chosen: frozenset[str] | None = frozenset()
        if timed and self._chooses(targets):
            chosen = attempt("cache", lambda: self.cache.products.read(timed), chosen, "products are called")
        self.products = chosen or self.products
        if not timed:
            return Known("", "", None, chosen)
        key = attempt(
            "cache",
            lambda: self._key(targets, self.donated, self.demoted),
            "",
            f"{self.name} is not kept on disk",
        )
        read = partial(self._timed, "cache", lambda: self.cache.read(key, targets))
        found = attempt("cache", read, None, f"{self.name} is compiled anew") if key else None
        return Known(key, timed, found, chosen)

    def _rounds(self, targets: TargetSet, known: Known) -> Compiled:
        """Compile, leaving what fails to ATen: the nodes that are to blame, as often as that helps."""
        left = self.demoted
        failed: list[tuple[LitzError, LoopGraph | None]] = []
        for _ in range(ROUNDS):
            attempt = _Round()
            try:
                made = self._round(attempt, left, targets, known)
            except LitzError as error:
                if attempt.artifact is not None:
                    self.cache.forget(attempt.artifact)  # what does not load is of no use to others either
                alone = attempt.plan is None or attempt.plan.device == CPU
                if self.config.fallback == "error" or (isinstance(error, CompilerNotFound) and alone):
                    raise
                blamed = self._blamed(error, attempt, targets)
                if not blamed - left:
                    raise
                left |= blamed
                failed.append((error, self.loops))
                continue
            for failure, loops in failed:
                instead = f"{', '.join(sorted(left))} run as ATen instead"
                self.failures.report(failure, failure.stage, instead, loops, left)
            return made
        raise CodegenError(
            f"{self.name} still fails after {ROUNDS} rounds: {failed[-1][0].message}",
            stage=failed[-1][0].stage,
            node=failed[-1][0].node,
            origin=failed[-1][0].origin,
        ) from failed[-1][0]

    def _round(self, attempt: _Round, left: frozenset[str], targets: TargetSet, known: Known) -> Compiled:
        """All stages, with these nodes ``left`` to ATen."""
        lowered = attempt.lowered = self.lower(left, targets)
        self.loops = lowered.graph
        plan = attempt.plan = self.schedule(lowered, targets)
        units, binaries = self.build(plan, targets)
        artifact = attempt.artifact = Artifact(
            known.key, plan, units, binaries, left_to_aten(lowered, self.demoted), dict(self.timings.seconds),
            unkept=known.unkept,
        )  # fmt: skip
        # What a failure has left its mark on is compiled anew the next time.
        if known.artifact is None and known.key and not lowered.routines and left == self.demoted:
            self._kept("store", partial(self.cache.write, artifact))
        better: Better | None = None
        if known.chosen is None and may_be_generated(lowered.graph):
            better = partial(self._better, known.timed, lowered, plan, targets)
        elif known.chosen is None:
            self._kept("store", partial(self.cache.products.write, known.timed, frozenset()))
        made = self._finish(artifact, lowered.constants, targets, lowered.routines, better)
        return replace(made, settled=made.settled and left == self.demoted)

    def _kept(self, name: str, work: Callable[[], object]) -> None:
        """Keep something on disk, if that can be done."""
        self.failures.attempt(
            name, partial(self._timed, name, work), None, f"{self.name} is not kept on disk"
        )

    def _blamed(self, error: LitzError, attempt: _Round, targets: TargetSet) -> frozenset[str]:
        """The operations to leave to ATen after an error."""
        blamed = nodes_at_fault(error, attempt.lowered)
        if attempt.plan is not None and isinstance(error, CompileTimeout) and error.kernels:
            plans = [launches_on(kind, attempt.plan) for kind in targets.by_kind]
            timed_out = [(p, k) for p in plans for k in p.kernels if k.name in error.kernels]
            blamed = blamed.union(*(kernel_origins(plan, kernel) for plan, kernel in timed_out))
        elif attempt.plan is not None and attempt.artifact is None:
            blamed |= self.failing_nodes(attempt.plan, targets)
        # Inputs and outputs are no operations that could run elsewhere.
        return blamed - {node.name for node in self.gm.graph.nodes if node.op in ("placeholder", "output")}

    def _key(self, targets: TargetSet, donated: frozenset[str], demoted: frozenset[str]) -> str:
        options = self.options(targets)
        named = (self.held, donated, self.saved, self._numbered(demoted))
        return self.cache.key(self.gm, self.config, targets, options, *named)

    def demote(self, nodes: frozenset[str]) -> None:
        """Record that nodes run as ATen whenever this graph is compiled, by this process or another.

        Names that are not the graph's own, those of subgraphs and of what passes make, are recorded as they are.
        """
        self.demoted |= nodes
        if self.record:
            numbered = self._numbered(self.demoted)
            self._kept("store", partial(self.cache.demotions.add, self.record, numbered))

    def _on_record(self) -> frozenset[str]:
        """The nodes that were demoted before."""
        found = self.cache.demotions.read(self.record)
        if not found:
            return frozenset()
        names = [node.name for node in self.gm.graph.nodes]
        return frozenset(names[int(each[1:])] if each.startswith("%") else each for each in found)

    def _numbered(self, nodes: frozenset[str]) -> frozenset[str]:
        """Nodes by their positions, since graphs of one key may differ in names."""
        if not nodes:
            return nodes
        positions = {node.name: f"%{position}" for position, node in enumerate(self.gm.graph.nodes)}
        return frozenset(positions.get(name, name) for name in nodes)

    def options(self, targets: TargetSet) -> SchedulerOptions:
        """What the scheduler may do."""
        allowed = scheduler_options(self.config, targets)
        return replace(allowed, generated_products=allowed.generated_products | self.products)

    def _chooses(self, targets: TargetSet) -> bool:
        """True where products are generated or called, whatever takes less time."""
        alone = "cuda" in targets.by_kind and self.gpus == ONE_GPU
        return (
            self.config.autotune and alone and not scheduler_options(self.config, targets).generated_products
        )

    def _better(
        self, key: str, lowered: LoweredGraph, first: Plan, targets: TargetSet, sample: Sample
    ) -> Artifact | None:
        """The graph with the products generated that take less time so, where it can take the place of its ``first``
        plan; the choice is kept by ``key``."""
        end = time.perf_counter() + self.config.autotune_seconds / 2

        def planned(graph: LoopGraph, products: frozenset[str]) -> Plan:
            options = compared(scheduler_options(self.config, targets), products)
            return schedule(graph, PassContext(targets.capabilities()), options)

        def part(plan: Plan, config: Config) -> Loader:
            alone = Artifact("part", plan, *self.build(plan, targets))
            return loader_of(alone, plan.name, targets, config)

        def loaded(plan: Plan) -> HostFunction:
            return part(plan, self.config).call()

        def tuned(plan: Plan) -> HostFunction:
            # What is found is kept by the kernel, so that the whole graph begins with it.
            seconds = max(0.0, end - time.perf_counter()) / 2
            config = replace(self.config, autotune_seconds=seconds, cuda_graphs=False)
            return with_tuning(part(plan, config), self.cache, lambda: sample).call

        self.products = better_generated(
            lowered.graph, planned, loaded, tuned, sample, lambda: time.perf_counter() < end
        )
        if time.perf_counter() < end:
            # What there was no time for is tried by the next process.
            self._kept("store", partial(self.cache.products.write, key, self.products))
        if not self.products:
            return None
        # Who calls a backward knows which inputs its first plan writes over.
        donated = frozenset(first.donated)
        own = replace(lowered, graph=replace(lowered.graph, donated=first.donated))
        plan = self.schedule(own, targets)
        if not may_replace(plan, first):
            log.info(
                "litz: %s keeps its plan until it is compiled anew: results would change place", self.name
            )
            return None
        key = self._key(targets, donated, self.demoted)
        artifact = Artifact(key, plan, *self.build(plan, targets), left_to_aten(lowered, self.demoted))
        if not lowered.routines:
            self._kept("store", partial(self.cache.write, artifact))
        return artifact

    # --- the stages -----------------------------------------------------------------------------------------

    def lower(self, forced: frozenset[str], targets: TargetSet) -> LoweredGraph:
        """FX to loops."""
        options = lowering_options(self.config, targets, forced)
        named = {"held": self.held, "donated": self.donated, "saved": self.saved}
        return self._timed("lower", lambda: lower(self.gm, name=self.name, options=options, **named))

    def schedule(self, lowered: LoweredGraph, targets: TargetSet) -> Plan:
        """Loops to a plan."""
        context = PassContext(targets.capabilities())
        hooks: Sequence[Hook] = hooks_for(self.config)
        plan = self._timed(
            "schedule",
            lambda: schedule(lowered.graph, context, self.options(targets), hooks=hooks, timings=None),
        )
        return replace(plan, decisions=(*lowered.decisions, *plan.decisions))

    def build(self, plan: Plan, targets: TargetSet) -> tuple[tuple[SourceUnit, ...], tuple[Path, ...]]:
        """A plan to sources to binaries, units side by side."""
        jobs: list[tuple[SourceUnit, Target]] = []
        for kind, target in targets.by_kind.items():
            own = launches_on(kind, plan)
            if own.kernels:
                units = self._timed("emit", partial(target.emit, own))
                jobs += [(unit, target) for unit in units]
        start = time.perf_counter()
        with stage("compile"):
            with ThreadPoolExecutor(max_workers=max(1, min(len(jobs), self.side_by_side))) as pool:
                binaries = tuple(pool.map(lambda job: self._binary(*job), jobs))
        self.timings.add("compile", time.perf_counter() - start)
        return tuple(unit for unit, _ in jobs), binaries

    def _binary(self, unit: SourceUnit, target: Target) -> Path:
        try:
            return self.cache.binary(unit, target)
        except CompileTimeout as error:
            error.kernels = unit.kernels
            raise

    def failing_nodes(self, plan: Plan, targets: TargetSet) -> frozenset[str]:
        """The FX nodes behind the kernels that cannot be emitted or built, each tried alone: of a pack those behind the
        parts that fail by themselves, or all where none does."""
        blamed: frozenset[str] = frozenset()
        for kind, target in targets.by_kind.items():
            own = launches_on(kind, plan)
            for kernel in own.kernels:
                if not self._fails(own, kernel, target):
                    continue
                alone = enumerate(parts_alone(kernel))
                failing = frozenset(number for number, part in alone if self._fails(own, part, target))
                blamed |= kernel_origins(own, kernel, failing)
        return blamed

    def _fails(self, plan: Plan, kernel: Kernel, target: Target) -> bool:
        """True for a kernel that cannot be emitted or built; ``plan`` may launch it."""
        steps = tuple(each for each in plan.steps if isinstance(each, Launch) and each.kernel == kernel.name)
        try:
            for unit in target.emit(replace(plan, kernels=(kernel,), steps=steps)):
                self.cache.binary(unit, target)
        except Exception:
            return True  # what it was is told of the whole
        return False

    def _finish(
        self,
        artifact: Artifact,
        constants: Mapping[str, torch.Tensor],
        targets: TargetSet,
        routines: Mapping[str, Callable[..., Any]] = NO_ROUTINES,
        better: Better | None = None,
    ) -> Compiled:
        given = (targets, self.config, self.cache, constants, routines, self.gpus)
        loaded = partial(load, artifact, self.name, *given, better=better, failures=self.failures)
        made = self._timed("load", loaded)
        assert made.artifact is not None
        return replace(made, artifact=replace(made.artifact, seconds=dict(self.timings.seconds)))

    # --- helpers --------------------------------------------------------------------------------------------

    def _timed(self, name: str, work: Callable[[], T]) -> T:
        """What a stage gives, which raises ``LitzError`` alone."""
        start = time.perf_counter()
        try:
            with stage(name):
                return work()
        finally:
            self.timings.add(name, time.perf_counter() - start)


def lowering_options(config: Config, targets: TargetSet, forced: frozenset[str]) -> LoweringOptions:
    """What the user and the devices of the graph let lowering do; nodes of these names run as ATen."""
    machines = targets.capabilities()
    longest = max((known.sorted_row for known in machines.values()), default=0)
    return LoweringOptions(
        rng=config.rng,
        numerics=config.numerics,
        force_extern=forced,
        fallback=config.fallback,
        attention=config.attention,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        folds=frozenset(device.kind for device, known in machines.items() if known.folds),
        sorted_row=longest if config.sort_rows else 0,
    )


def scheduler_options(config: Config, targets: TargetSet) -> SchedulerOptions:
    """What the user and the libraries of this machine let the scheduler do; raises ``ConfigError``."""
    cpu = targets.capabilities().get(CPU)
    allowed: dict[str, Any] = {
        "fuse": config.fuse,
        "linear_flops": linear_flops(cpu),
        "convolutions": has_convolutions(cpu),
        "product_precision": f32_products() if "cuda" in targets.by_kind else "ieee",
        "convolution_precision": f32_convolutions() if "cuda" in targets.by_kind else "ieee",
    }
    return SchedulerOptions(**(allowed | forced(config.force)))


def device_kinds(gm: GraphModule) -> tuple[str, ...]:
    """The kinds of the devices that the tensors of a graph, and of those that it runs, are on; ``cpu`` for a graph
    without tensors."""
    kinds = dict.fromkeys(tensor.device.type for tensor in tensors_of(gm))
    return tuple(kinds) or ("cpu",)


def tensors_of(gm: GraphModule) -> Iterable[torch.Tensor]:
    """Examples of all tensors of a graph and of those that it runs."""
    graphs = (module.graph for module in gm.modules() if isinstance(module, GraphModule))
    return (tensor for graph in graphs for node in graph.nodes for tensor in _tensors(node.meta.get("val")))


def _tensors(value: object) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


def left_to_aten(lowered: LoweredGraph, demoted: frozenset[str] = frozenset()) -> tuple[LeftToAten, ...]:
    """What nothing was generated for: operations without a rule, the contractions that a library runs, and what is
    ``demoted``."""
    return tuple(
        LeftToAten(f.target, DEMOTED if f.node in demoted else f.reason, f.origin.describe())
        for f in lowered.fallbacks
    )


def nodes_at_fault(error: LitzError, lowered: LoweredGraph | None) -> frozenset[str]:
    """The FX nodes to leave to ATen after ``error``: those behind the operation or the kernel that it names."""
    names = {error.origin.node, error.node}
    if lowered is None:
        return frozenset(names - {""})
    known = set(lowered.operations_of)
    owners = {made: node for node, operations in lowered.operations_of.items() for made in operations}
    return frozenset({n for n in names if n in known} | {owners[n] for n in names if n in owners})


def kernel_origins(plan: Plan, kernel: Kernel, parts: frozenset[int] = frozenset()) -> frozenset[str]:
    """The FX nodes that a kernel computes; those of a pack that these ``parts`` do, by number, where some are given."""
    found: set[str] = set()
    for step in plan.steps:
        if isinstance(step, Launch) and step.kernel == kernel.name:
            divided = origins_by_part(kernel, step.origins) if parts else (step.origins,)
            found.update(each.origin.node for part in parts or (0,) for each in divided[part])
    return frozenset(found)
