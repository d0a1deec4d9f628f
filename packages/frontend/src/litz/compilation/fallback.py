"""Fallback around the stages: what fails is left to ATen, operation by operation, as often as that helps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module

from litz.artifact import Artifact
from litz.compilation.cached import CachedGraph, CacheLookup
from litz.loading import Compiled
from litz.pipeline import Progress, Stages
from litz.targets import launches_on, scheduled_by
from litz.tuning.tuned_graph import Better
from litz_ir.device import CPU
from litz_ir.errors import CodegenError, CompilerNotFound, CompileTimeout, LitzError
from litz_ir.loops import LoopGraph
from litz_ir.plan import Kernel, Launch, Plan, origins_by_subkernel, split_subkernels
from litz_ir.target import Target
from litz_lowering import LoweredGraph

ROUNDS = 3
"""How often a graph is lowered again with what failed left to ATen, before all of it is."""


GENERATED = "litz.compilation.generated"
"""The module that looks for products that are better generated, loaded where the options ask for that."""


@dataclass(slots=True)
class Fallback:
    """Runs the stages of a graph of which something is ``known``; ``kept`` has its entries of the cache."""

    stages: Stages
    kept: CachedGraph
    known: CacheLookup

    def run(self) -> Compiled:
        """Compile, leaving what fails to ATen: the nodes that are to blame, as often as that helps."""
        stages, name = self.stages, self.stages.captured.name
        left = self.stages.demoted
        failed: list[tuple[LitzError, LoopGraph | None]] = []
        for _ in range(ROUNDS):
            progress = Progress()
            try:
                made = stages.run(progress, left, partial(self._finish, left))
            except LitzError as error:
                if progress.artifact is not None:
                    stages.cache.drop(progress.artifact)  # what does not load is of no use to others either
                alone = progress.plan is None or progress.plan.device == CPU
                if stages.config.fallback == "error" or (isinstance(error, CompilerNotFound) and alone):
                    raise
                blamed = self._blamed(error, progress)
                if not blamed - left:
                    raise
                left |= blamed
                failed.append((error, stages.loops))
                continue
            for failure, loops in failed:
                instead = f"{', '.join(sorted(left))} run as ATen instead"
                stages.failures.report(failure, failure.stage, instead, loops, left)
            return replace(made, settled=made.settled and left == self.stages.demoted)
        raise CodegenError(
            f"{name} still fails after {ROUNDS} rounds: {failed[-1][0].message}",
            stage=failed[-1][0].stage,
            node=failed[-1][0].node,
            origin=failed[-1][0].origin,
        ) from failed[-1][0]

    def _finish(self, left: frozenset[str], lowered: LoweredGraph, artifact: Artifact) -> Better | None:
        """Keep an artifact, and say how a better one is looked for, where that is not known yet."""
        known, kept = self.known, self.kept
        # What a failure has left its mark on is compiled anew the next time.
        if known.artifact is None and artifact.key and left == self.stages.demoted:
            kept.keep_artifact(artifact, lowered)
        if known.chosen is not None:
            return None
        search: Better | None = import_module(GENERATED).search_of(
            self.stages, kept, known.timed, lowered, artifact.plan
        )
        return search

    def _blamed(self, error: LitzError, progress: Progress) -> frozenset[str]:
        """The operations to leave to ATen after an error."""
        blamed = nodes_at_fault(error, progress.lowered)
        plan = progress.plan
        if plan is not None and isinstance(error, CompileTimeout) and error.kernels:
            plans = [launches_on(kind, plan) for kind in self.stages.targets.by_kind]
            timed_out = [(p, k) for p in plans for k in p.kernels if k.name in error.kernels]
            blamed = blamed.union(*(kernel_origins(own, kernel) for own, kernel in timed_out))
        elif plan is not None and progress.artifact is None:
            blamed |= self._failing_nodes(plan)
        # Inputs and outputs are no operations that could run elsewhere.
        nodes = self.stages.captured.gm.graph.nodes
        return blamed - {node.name for node in nodes if node.op in ("placeholder", "output")}

    def _failing_nodes(self, plan: Plan) -> frozenset[str]:
        """The FX nodes behind the kernels that cannot be emitted or built, each tried alone: of a pack those behind the
        parts that fail by themselves, or all where none does."""
        blamed: frozenset[str] = frozenset()
        for kind, target in self.stages.targets.by_kind.items():
            own = launches_on(kind, plan)
            for kernel in own.kernels:
                if not self._fails(own, kernel, target):
                    continue
                alone = enumerate(split_subkernels(kernel))
                failing = frozenset(number for number, part in alone if self._fails(own, part, target))
                blamed |= kernel_origins(own, kernel, failing)
        return blamed

    def _fails(self, plan: Plan, kernel: Kernel, target: Target) -> bool:
        """True for a kernel that cannot be emitted or built; ``plan`` may launch it."""
        steps = tuple(each for each in plan.steps if isinstance(each, Launch) and each.kernel == kernel.name)
        try:
            alone = scheduled_by(target, replace(plan, kernels=(kernel,), steps=steps))
            for unit in target.emit(alone):
                self.stages.cache.binary(unit, target)
        except Exception:
            return True  # what it was is told of the whole
        return False


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
            divided = origins_by_subkernel(kernel, step.origins) if parts else (step.origins,)
            found.update(each.origin.node for part in parts or (0,) for each in divided[part])
    return frozenset(found)
