"""One captured graph from start to end: found in the cache, or compiled with what fails left to ATen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch.fx import GraphModule

from litz.cache.artifacts import ArtifactCache
from litz.compilation.cached import CachedGraph
from litz.compilation.fallback import Fallback
from litz.failures import Failures, GraphSource
from litz.host.devices import device_kinds, first_gpu, tensors_of
from litz.host.gpus import gpus_among
from litz.host.precision import warn_about_bf16
from litz.loading import Compiled
from litz.pipeline import CapturedGraph, Stages
from litz.settings import Config
from litz.targets import targets_for
from litz_ir.errors import NotCompiled, stage
from litz_ir.loops import LoopGraph
from litz_ir.target import PreparedTarget
from litz_lowering import gpus_of

EVERYTHING = "*"
"""Stands for a graph's every operation among those that are demoted."""


@dataclass(slots=True)
class Compilation:
    """A graph on its way. The instance belongs to one thread.

    ``frozen``, ``donated`` and ``saved`` are those of a :class:`~litz.pipeline.CapturedGraph`. ``demoted`` names the
    nodes that run as ATen since a self-check found the kernels that computed them wrong.
    """

    gm: GraphModule
    name: str
    config: Config
    cache: ArtifactCache
    held: frozenset[str] = frozenset()
    donated: frozenset[str] = frozenset()
    saved: frozenset[str] = frozenset()
    demoted: frozenset[str] = frozenset()
    failures: Failures = field(init=False)
    stages: Stages | None = field(init=False, default=None)
    kept: CachedGraph | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        source = GraphSource(self.gm, self.name, False, self.held, self.donated, self.saved)
        self.failures = self.cache.failures.of(source)

    @property
    def loops(self) -> LoopGraph | None:
        """The graph as it was lowered last; ``None`` where it was not."""
        return None if self.stages is None else self.stages.loops

    def run(self) -> Compiled:
        """Compile the graph, or fetch it; degrade to ATen what fails, as ``config.fallback`` says."""
        warn_about_bf16(tensors_of(self.gm))
        devices = gpus_of(self.gm)
        gpus = gpus_among(devices)
        with first_gpu(devices):
            with stage("target"):
                targets = targets_for(device_kinds(self.gm), self.config)
            captured = CapturedGraph(self.gm, self.name, self.held, self.donated, self.saved)
            self.stages = Stages(
                captured, self.config, self.cache, targets, self.failures, gpus, demoted=self.demoted
            )
            return self._run(self.stages)

    def _run(self, stages: Stages) -> Compiled:
        self.kept = CachedGraph(stages)
        known = self.kept.known()
        self.demoted = stages.demoted
        if EVERYTHING in self.demoted:
            raise NotCompiled(f"a self-check found results of {self.name} wrong")
        found = self.kept.loaded(known)
        if found is not None:
            return found
        if known.suffices:
            known = replace(known, artifact=None)  # it does not load
        with stage("target"):
            for target in stages.targets.by_kind.values():
                if isinstance(target, PreparedTarget):
                    stages.side_by_side = target.prepare()
        return Fallback(stages, self.kept, known).run()

    def demote(self, nodes: frozenset[str]) -> None:
        """Record that nodes run as ATen whenever this graph is compiled, by this process or another.

        Names that are not the graph's own, those of subgraphs and of what passes make, are recorded as they are.
        """
        self.demoted |= nodes
        if self.kept is not None:
            self.kept.demote(nodes)
