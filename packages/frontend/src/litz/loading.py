"""From an artifact to a callable: its binaries loaded, its host program bound to them, its calls recorded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from litz.artifact import Artifact
from litz.cuda_graphs.cuda_graph import capture_of
from litz.cuda_graphs.eligibility import ROUTINES, overwritten, shared_with_inputs
from litz.cuda_graphs.runner import CudaGraphRunner
from litz.failures import Failures
from litz.host.devices import on_current_device
from litz.host.externs import NO_ROUTINES
from litz.host.gpus import ONE_GPU, Gpus
from litz.host.load import NO_PARTITIONS, HostFunction, Replacements, load_program
from litz.host.native import Watch, segment_binder
from litz.host.program import HostProgram
from litz.host.source import host_program
from litz.host.torch_memory import keep_freed_memory
from litz.settings import Config
from litz.targets import TargetSet
from litz_ir.passes import PassContext, Pipeline
from litz_ir.plan import Plan
from litz_scheduler import replay_passes
from litz_scheduler.graph_partition import GraphPartition

log = logging.getLogger("litz")

FAILED = "it runs without being replayed"
"""What becomes of a graph that cannot be recorded."""

NO_CONSTANTS: Mapping[str, torch.Tensor] = MappingProxyType({})


@dataclass(slots=True)
class Compiled:
    """A callable graph: takes the list of arguments (and empties it), gives the sequence of results. Where it is
    ``frozen``, what was computed of parameters alone is never made again. ``cuda_graph`` says whether it is recorded
    and replayed, and why not, where that was asked for. ``settled`` is false where the next calls may find a better
    plan. ``loader`` makes the callable anew, for those who watch it run."""

    call: HostFunction
    artifact: Artifact | None
    source: str = ""
    frozen: bool = False
    cuda_graph: str = ""
    settled: bool = True
    loader: Loader | None = None


@dataclass(frozen=True, slots=True)
class Loader:
    """All that makes an artifact callable, as often as that is wanted; tracebacks know it by ``name``. ``gpus`` are the
    machine's that the graph is on, where these are several; the first is current while it is loaded."""

    artifact: Artifact
    name: str
    targets: TargetSet
    config: Config
    program: HostProgram
    constants: Mapping[str, torch.Tensor]
    routines: Mapping[str, Callable[..., Any]]
    gpus: Gpus
    failures: Failures

    def call(self, watch: Watch | None = None) -> HostFunction:
        """The graph on the device that is current, as it is; ``watch`` sees its launches. Raises ``LitzError``."""
        return self._loaded(self.program, watch)

    def _loaded(
        self, program: HostProgram, watch: Watch | None = None, instead: Replacements = NO_PARTITIONS
    ) -> HostFunction:
        """A host program of the graph, with other functions instead of some of its branches."""
        artifact = self.artifact
        built = zip(artifact.units, artifact.binaries, strict=True)
        told = self.failures.callback("call")
        bind = segment_binder(artifact.plan, tuple(built), self.targets, self.gpus, watch, told)
        file = f"<litz {self.name} {artifact.key[:12]}>"
        keep_freed_memory()
        frozen = self.config.freezing
        given = (program, bind, self.constants, file, self.routines, self.gpus)
        call = load_program(*given, frozen=frozen, instead=instead, told=told)
        return on_current_device(call) if artifact.plan.device.kind == "cuda" else call

    def of(self, artifact: Artifact) -> Loader:
        """What loads another artifact of the same graph. Raises ``LitzError``."""
        given = (self.name, self.targets, self.config, self.constants, self.routines, self.gpus)
        return loader_of(artifact, *given, self.failures)

    def compiled(self, call: HostFunction | None = None) -> Compiled:
        """The graph as the options want it called: as ``call``, where somebody else sees to that. Raises
        ``LitzError``."""
        called = self.with_cuda_graphs(self.call()) if call is None else call
        made = Compiled(called, self.artifact, self.program.listing, self.config.freezing, loader=self)
        if not self.config.cuda_graphs:
            return made
        choice = self._choice()
        if not choice.whole:
            log.info("litz: %s: %s", self.artifact.plan.name, choice.summary)
        return replace(made, cuda_graph=choice.summary)

    def _choice(self) -> GraphPartition:
        """What is recorded of the plan."""
        plan, context = self.artifact.plan, PassContext({})
        passes = Pipeline[Plan, GraphPartition]("replay", replay_passes(ROUTINES))
        divide = partial(passes.apply, plan, context)
        return self.failures.attempt("replay", divide, GraphPartition(plan, summary=FAILED), FAILED)

    def with_cuda_graphs(self, call: HostFunction) -> HostFunction:
        """A call of the graph, recorded as a CUDA graph where the options ask for that and it can be done, or the graph
        with parts of it recorded. Raises ``LitzError``."""
        if not self.config.cuda_graphs:
            return call
        return self.failures.attempt("replay", lambda: self._replayed(call), call, FAILED)

    def _replayed(self, call: HostFunction) -> HostFunction:
        choice = self._choice()
        if choice.whole:
            return on_current_device(self._recorded(choice.plan, call))
        if not choice.partitions:
            return call
        program = host_program(choice.plan)
        branches = zip(choice.plan.subplans, program.branches, strict=True)
        parts = {
            branch.name: partial(self._recorded, plan)
            for plan, branch in branches
            if plan.name in choice.partitions
        }
        return self._loaded(program, instead=parts)

    def _recorded(self, plan: Plan, call: HostFunction) -> HostFunction:
        """The calls of a plan, recorded and replayed as CUDA graphs."""
        recorder = capture_of(torch.cuda.current_device())
        assert isinstance(plan.peak, int), "sizes are fixed where calls are recorded"
        shared = shared_with_inputs(plan)
        return CudaGraphRunner(call, recorder, plan.peak, overwritten(plan), shared, failures=self.failures)


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
    """What loads an artifact; raises ``CodegenError`` for a plan that the host cannot express."""
    program = host_program(artifact.plan)
    told = Failures(config) if failures is None else failures
    return Loader(artifact, name, targets, config, program, constants, routines, gpus, told)
