"""Loading: an artifact becomes a callable, with its binaries loaded and its calls captured as CUDA graphs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from litz.artifact import Artifact
from litz.cache.libraries import launchers
from litz.cuda_graphs.eligibility import overwritten, shared_with_inputs
from litz.devices import gpu, is_gpu
from litz.host.emit.source import host_program
from litz.host.program import Detail, HostProgram, InputAsserts
from litz.host.runtime.externs import NO_ROUTINES
from litz.host.runtime.frozen_copies import FrozenCopies
from litz.host.runtime.frozen_results import FrozenResults
from litz.host.runtime.gpus import ONE_GPU, Gpus
from litz.host.runtime.graph_devices import on_current_device
from litz.host.runtime.load import (
    NO_PARTITIONS,
    CallWatch,
    HostFunction,
    Observer,
    Replacements,
    load_program,
    unless_profiled,
)
from litz.host.runtime.native import Watch, segment_binder
from litz.host.runtime.torch_memory import keep_freed_memory
from litz.reports.failures import Failures
from litz.settings import Config
from litz.targets import TargetSet
from litz_ir.errors import ArtifactError
from litz_ir.passes import PassContext
from litz_ir.plan import Plan

if TYPE_CHECKING:
    from litz_scheduler.graph_partition import GraphPartition

log = logging.getLogger("litz")

_CUDA_GRAPH, _RUNNER = "litz.cuda_graphs.cuda_graph", "litz.cuda_graphs.runner"
_PARTITION = "litz.cuda_graphs.partition"
"""Modules loaded where a graph is captured: programs on a CPU do not need them."""

_CALLS, _EVENTS, _VALUES = "litz.profiling.calls", "litz.profiling.events", "litz.profiling.values"
"""Modules loaded where a profiler runs, and where values are reported."""

_DETERMINISM = "litz.host.runtime.determinism"
"""Module loaded where results have to repeat."""

_FAILED = "it runs without being replayed"
"""Consequence of a failure to capture a graph, in log lines and in ``litz.explain``."""

NO_CONSTANTS: Mapping[str, torch.Tensor] = MappingProxyType({})
"""The constants of a graph that has none."""


@dataclass(slots=True)
class Compiled:
    """A callable graph."""

    call: HostFunction
    """The function: takes the list of arguments, which it empties, and returns the sequence of results."""

    artifact: Artifact | None
    """The artifact behind ``call``; ``None`` where the graph runs as ATen operations."""

    source: str = ""
    """Source of the host program, for ``litz.explain``."""

    frozen: bool = False
    """True where results of frozen regions are never computed again."""

    cuda_graph: str = ""
    """Description of the CUDA graphs that the call replays, or the reason that it replays none; empty where the
    option is off."""

    settled: bool = True
    """False where later calls may find a faster plan."""

    loader: Loader | None = None
    """Makes the callable again, for observers of its launches; ``None`` where there is no artifact."""

    later: Callable[[], Compiled] | None = None
    """Completes the compilation, in any thread, while ``call`` runs ATen; ``None`` where it is complete."""


@dataclass(frozen=True, slots=True)
class Loader:
    """Makes an artifact callable, as often as needed."""

    artifact: Artifact
    """The compiled graph."""

    name: str
    """Name of the graph in tracebacks."""

    targets: TargetSet
    """Targets that load its binaries."""

    config: Config
    """Options, for CUDA graphs and freezing."""

    program: HostProgram
    """Host program of the artifact's plan."""

    constants: Mapping[str, torch.Tensor]
    """Tensors that the graph contains, by name."""

    routines: Mapping[str, Callable[..., Any]]
    """Functions of this process that the plan calls, by name."""

    gpus: Gpus
    """Ordinals of the graph's GPUs, where there are several; the first is the current device while loading."""

    failures: Failures
    """Failure policy of the graph."""

    def call(self, watch: Watch | None = None, watch_calls: CallWatch | None = None) -> HostFunction:
        """Return the call of the graph on the current device, without CUDA graphs.

        ``watch`` is called before each launch, ``watch_calls`` with each routine. Raises ``LitzError``.
        """
        return self._loaded(self.artifact.plan, self.program, watch, watch_calls=watch_calls)

    def _loaded(
        self,
        plan: Plan,
        program: HostProgram,
        watch: Watch | None = None,
        instead: Replacements = NO_PARTITIONS,
        watch_calls: CallWatch | None = None,
    ) -> HostFunction:
        """Load the host program of the graph's ``plan``, with other functions in place of some of its branches."""
        artifact = self.artifact
        built = zip(artifact.units, artifact.binaries, strict=True)
        report = self.failures.callback("call")
        launcher_of = partial(launchers.of, config=self.config)
        bind = segment_binder(
            artifact.plan, tuple(built), self.targets, self.gpus, watch, report, launcher_of
        )
        file = f"<litz {self.name} {artifact.key[:12]}>"
        keep_freed_memory()
        stored: dict[str, FrozenResults | FrozenCopies] = {}

        def load(form: HostProgram, observer: Observer | None = None) -> HostFunction:
            return load_program(
                form, bind, self.constants, file, self.routines, self.gpus, frozen=self.config.freezing,
                instead=instead, report=report, watch=watch_calls, stored=stored, observer=observer,
                compare=bind.comparison, copies=bind.copies,
            )  # fmt: skip

        call = load(program) if watch is not None else self._observable(plan, program, load)
        if self.config.deterministic:
            call = import_module(_DETERMINISM).with_deterministic_routines(call)
        return on_current_device(call, artifact.plan.device.kind)

    def _observable(
        self, plan: Plan, program: HostProgram, load: Callable[..., HostFunction]
    ) -> HostFunction:
        """Return the call of a plan, whose steps torch's profiler sees while it runs, and whose values are reported
        where the options say so."""
        chosen, show, asserts = self.config.debug_values, None, _asserts(self.config)
        training = _is_training(self.name)
        detail: Detail = "steps"
        if chosen == "off":
            call = load(program)
        else:
            values = import_module(_VALUES)
            detail, show = "values", values.ValueReport(self.name, chosen).computed
            call = load(
                host_program(plan, detail="values", asserts=asserts, training=training),
                Observer(values.unobserved, show),
            )

        def observed() -> HostFunction:
            around = import_module(_EVENTS).StepEvents(plan).around
            made = host_program(plan, detail=detail, asserts=asserts, training=training)
            return load(made, Observer(around, show))

        def made() -> HostFunction:
            hidden = f"the profiler does not see the steps of {self.name}"
            steps = self.failures.attempt("load", observed, call, hidden)
            calls = import_module(_CALLS)
            event: HostFunction = calls.as_event(steps, f"litz graph {self.name}")
            return calls.unless_captured(call, event) if is_gpu(plan.device.kind) else event

        return unless_profiled(call, made)

    def of(self, artifact: Artifact) -> Loader:
        """Return the loader of another artifact of the same graph; raise ``LitzError``."""
        given = (self.name, self.targets, self.config, self.constants, self.routines, self.gpus)
        return loader_of(artifact, *given, self.failures)

    def compiled(self, call: HostFunction | None = None) -> Compiled:
        """Return the graph, called as the options say, or by ``call`` where one is given; raise ``LitzError``."""
        called = self.with_cuda_graphs(self.call()) if call is None else call
        made = Compiled(called, self.artifact, self.program.listing, self.config.freezing, loader=self)
        if not self._replays:
            return made
        choice = self._choice()
        if not choice.whole:
            log.info("litz: %s: %s", self.artifact.plan.name, choice.summary)
        return replace(made, cuda_graph=choice.summary)

    @property
    def _replays(self) -> bool:
        """True where calls are replayed as CUDA graphs; values cannot be read in one."""
        return self.config.cuda_graphs and self.config.debug_values == "off"

    def _choice(self) -> GraphPartition:
        """Return the parts of the plan to capture as CUDA graphs."""
        context = PassContext(self.targets.capabilities())
        made: GraphPartition = import_module(_PARTITION).partition_of(
            self.artifact.plan, context, self.failures, _FAILED
        )
        return made

    def with_cuda_graphs(self, call: HostFunction) -> HostFunction:
        """Return a call that captures and replays the graph, or parts of it, as CUDA graphs; else ``call`` itself.

        Raises ``LitzError``.
        """
        if not self._replays:
            return call
        return self.failures.attempt("replay", lambda: self._partitioned(call), call, _FAILED)

    def _partitioned(self, call: HostFunction) -> HostFunction:
        """Return the call with CUDA graphs that the graph partition chooses."""
        choice = self._choice()
        if choice.whole:
            return on_current_device(self._captured(choice.plan, call), choice.plan.device.kind)
        if not choice.partitions:
            return call
        program = host_program(choice.plan, asserts=_asserts(self.config), training=_is_training(self.name))
        branches = zip(choice.plan.subplans, program.branches, strict=True)
        runners: dict[str, HostFunction] = {}

        def captured(own: Plan, call: HostFunction) -> HostFunction:
            # Under a profiler the program is loaded in another form, which replays the same graphs.
            if own.name not in runners:
                runners[own.name] = self._captured(own, call)
            return runners[own.name]

        parts = {
            branch.name: partial(captured, plan)
            for plan, branch in branches
            if plan.name in choice.partitions
        }
        return self._loaded(choice.plan, program, instead=parts)

    def _captured(self, plan: Plan, call: HostFunction) -> HostFunction:
        """Return a call that captures and replays a whole plan as a CUDA graph."""
        capture = import_module(_CUDA_GRAPH).capture_of(gpu.current_device())
        assert isinstance(plan.peak, int), "sizes are fixed where calls are captured"
        shared = shared_with_inputs(plan)
        make: Callable[..., HostFunction] = import_module(_RUNNER).CudaGraphRunner
        runner = make(call, capture, plan.peak, overwritten(plan), shared, failures=self.failures)
        name = f"litz CUDA graph {plan.name}"
        return unless_profiled(runner, lambda: import_module(_CALLS).as_event(runner, name))


def _asserts(config: Config) -> InputAsserts:
    """Return the assertions about inputs that the options ask for."""
    return InputAsserts(config.size_asserts, config.alignment_asserts)


def _is_training(name: str) -> bool:
    """Report whether a graph of this name is half of a training graph, by the kind that names begin with."""
    return name.startswith(("forward_", "backward_"))


def not_loaded(args: list[Any]) -> Sequence[Any]:
    """Raise ``ArtifactError``: the call of a graph that was compiled for another machine."""
    raise ArtifactError("the graph was compiled for another machine", hint="litz.load loads the file there")


def loader_of(
    artifact: Artifact,
    name: str,
    targets: TargetSet,
    config: Config,
    constants: Mapping[str, torch.Tensor] = NO_CONSTANTS,
    routines: Mapping[str, Callable[..., Any]] = NO_ROUTINES,
    gpus: Gpus = ONE_GPU,
    failures: Failures | None = None,
) -> Loader:
    """Return the loader of an artifact; raise ``CodegenError`` for a plan that the host cannot express."""
    program = host_program(artifact.plan, asserts=_asserts(config), training=_is_training(name))
    policy = Failures(config) if failures is None else failures
    return Loader(artifact, name, targets, config, program, constants, routines, gpus, policy)
