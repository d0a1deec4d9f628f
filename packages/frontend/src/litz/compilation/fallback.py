"""Fallback around the stages: operations that fail run as ATen, and the graph is compiled again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from torch._ops import OperatorBase

from litz.artifact import Artifact
from litz.compilation.cached import CachedGraph, CacheLookup
from litz.loading import Compiled
from litz.pipeline import Progress, Scheme, Stages
from litz.targets import scheduled_by
from litz.tuning.tuned_graph import Better
from litz_ir.device import CPU
from litz_ir.errors import (
    CodegenError,
    CompilerNotFound,
    CompileTimeout,
    LitzError,
    NotCompiled,
    ScheduleError,
    UnblockedAttention,
)
from litz_ir.loops import LoopGraph
from litz_ir.plan import Kernel, Launch, Plan, launches_on, origins_by_subkernel, split_subkernels
from litz_ir.target import Target, requirements_of

if TYPE_CHECKING:
    from litz_lowering import LoweredGraph

_ROUNDS = 3
"""Most compilations of a graph, each with more operations as ATen, before the whole graph runs as ATen."""


_GENERATED = "litz.compilation.generated"
"""Module that searches for matmuls that are faster generated; imported where the options ask for it."""


@dataclass(slots=True)
class Fallback:
    """Runs the stages of a graph, with failing operations as ATen, until the third failure."""

    stages: Stages
    """Stages of the graph."""

    cached: CachedGraph
    """Cache entries of the graph."""

    known: CacheLookup
    """Entries that were read before."""

    scheme: Scheme | None = None
    """The way to run the stages; ``None`` for all of them in order, in this process."""

    forced: frozenset[str] = field(init=False)
    """Nodes that run as ATen in the next round."""

    failed: list[tuple[LitzError, LoopGraph | None]] = field(init=False, default_factory=list)
    """Errors of the rounds so far, each with its loop graph."""

    def __post_init__(self) -> None:
        self.forced = self.stages.demoted

    def run(self) -> Compiled:
        """Compile the graph; after a failure, again with the nodes that caused it as ATen. Raises ``LitzError``.

        A round that a scheme interrupts by another exception than ``LitzError`` is run again by the next call.
        """
        stages, name, failed = self.stages, self.stages.captured.name, self.failed
        while len(failed) < _ROUNDS:
            progress, forced = Progress(), self.forced
            try:
                given = progress, forced, partial(self._finish, forced)
                made = stages.run(*given) if self.scheme is None else self.scheme.run(stages, *given)
            except LitzError as error:
                if progress.artifact is not None:
                    stages.cache.drop(progress.artifact)  # other processes could not load it either
                if isinstance(error, NotCompiled):
                    raise
                if isinstance(error, UnblockedAttention):
                    blamed = _nodes_at_fault(error, progress.lowered)
                else:
                    alone = progress.plan is None or progress.plan.device == CPU
                    if stages.config.fallback == "error" or (isinstance(error, CompilerNotFound) and alone):
                        raise
                    blamed = self._blamed(error, progress)
                    failed.append((error, stages.loops))
                if not blamed - forced:
                    raise
                self.forced = forced | blamed
                continue
            for failure, loops in failed:
                instead = f"{', '.join(sorted(forced))} run as ATen instead"
                stages.failures.report(failure, failure.stage, instead, loops, forced)
            return replace(made, settled=made.settled and forced == self.stages.demoted)
        raise CodegenError(
            f"{name} still fails after {_ROUNDS} rounds: {failed[-1][0].message}",
            stage=failed[-1][0].stage,
            node=failed[-1][0].node,
            origin=failed[-1][0].origin,
        ) from failed[-1][0]

    def _finish(self, forced: frozenset[str], lowered: LoweredGraph, artifact: Artifact) -> Better | None:
        """Store an artifact, and return the search for a faster plan, where that is due."""
        known, cached = self.known, self.cached
        # After a failure, the next process compiles the graph again.
        if known.artifact is None and artifact.key and forced == self.stages.demoted:
            cached.store_artifact(artifact, lowered)
        if known.generated is not None:
            return None
        search: Better | None = import_module(_GENERATED).search_of(
            self.stages, cached, known.matmul_key, lowered, artifact.plan
        )
        return search

    def _blamed(self, error: LitzError, progress: Progress) -> frozenset[str]:
        """Return the operations to run as ATen after an error."""
        refused: frozenset[str] = frozenset()
        if isinstance(error, ScheduleError) and progress.lowered is not None:
            refused = self._refused(progress.lowered)
        # The operation that the error names may lack nothing itself, but those that were inlined into it.
        blamed = refused or _nodes_at_fault(error, progress.lowered)
        plan = progress.plan
        if plan is not None and isinstance(error, CompileTimeout) and error.kernels:
            plans = [launches_on(kind, plan) for kind in self.stages.targets.by_kind]
            timed_out = [(p, k) for p in plans for k in p.kernels if k.name in error.kernels]
            blamed = blamed.union(*(_kernel_origins(own, kernel) for own, kernel in timed_out))
        elif plan is not None and progress.artifact is None:
            blamed |= self._failing_nodes(plan)
        # Inputs, outputs and Python's operators on numbers cannot run as ATen operations.
        nodes = self.stages.captured.gm.graph.nodes
        return blamed - {node.name for node in nodes if not isinstance(node.target, OperatorBase)}

    def _refused(self, lowered: LoweredGraph) -> frozenset[str]:
        """Return the FX nodes whose loops need what their device lacks: all of them, since an error names one alone.

        Combiners that the device lacks are written out where it can run that.
        """
        machines = self.stages.targets.capabilities()
        known = {device.kind: machine for device, machine in machines.items()}
        refused = set()
        for operation in lowered.graph.operations:
            machine = known.get(operation.results[0].type.device.kind) if operation.results else None
            if machine is None:
                continue
            needs = requirements_of(operation)
            if (replace(needs, combiners=frozenset()) if machine.combines("user") else needs).lacking(
                machine
            ):
                refused.add(operation.name)
        owners = lowered.operations_of.items()
        return frozenset(node for node, made in owners if not refused.isdisjoint(made))

    def _failing_nodes(self, plan: Plan) -> frozenset[str]:
        """Return the FX nodes behind the kernels that cannot be emitted or built, each tried alone.

        Of a horizontally fused kernel these are the nodes of the subkernels that fail by themselves, or all where
        none does.
        """
        blamed: frozenset[str] = frozenset()
        for kind, target in self.stages.targets.by_kind.items():
            own = launches_on(kind, plan)
            for kernel in own.kernels:
                if not self._fails(own, kernel, target):
                    continue
                alone = enumerate(split_subkernels(kernel))
                failing = frozenset(
                    number for number, subkernel in alone if self._fails(own, subkernel, target)
                )
                blamed |= _kernel_origins(own, kernel, failing)
        return blamed

    def _fails(self, plan: Plan, kernel: Kernel, target: Target) -> bool:
        """Report whether a kernel cannot be emitted or built; ``plan`` contains its launches."""
        steps = tuple(each for each in plan.steps if isinstance(each, Launch) and each.kernel == kernel.name)
        try:
            alone = scheduled_by(target, replace(plan, kernels=(kernel,), steps=steps))
            for unit in target.emit(alone):
                self.stages.cache.binary(unit, target)
        except Exception:
            return True  # the error of the whole kernel is reported
        return False


def _nodes_at_fault(error: LitzError, lowered: LoweredGraph | None) -> frozenset[str]:
    """Return the FX nodes behind the operation or kernel that ``error`` names, to run as ATen."""
    names = {error.origin.node, error.node}
    if lowered is None:
        return frozenset(names - {""})
    known = set(lowered.operations_of)
    owners = {made: node for node, operations in lowered.operations_of.items() for made in operations}
    return frozenset({n for n in names if n in known} | {owners[n] for n in names if n in owners})


def _kernel_origins(plan: Plan, kernel: Kernel, subkernels: frozenset[int] = frozenset()) -> frozenset[str]:
    """Return the FX nodes that a kernel computes, or those of its ``subkernels``, by number, where some are given."""
    found: set[str] = set()
    for step in plan.steps:
        if isinstance(step, Launch) and step.kernel == kernel.name:
            divided = origins_by_subkernel(kernel, step.origins) if subkernels else (step.origins,)
            found.update(each.origin.node for subkernel in subkernels or (0,) for each in divided[subkernel])
    return frozenset(found)
