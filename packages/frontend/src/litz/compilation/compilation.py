"""Compilation of one captured graph: a cache hit, or the stages with fallback to ATen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from torch.fx import GraphModule

from litz.cache.artifacts import ArtifactCache
from litz.compilation.aten import run_in_aten
from litz.compilation.cached import CachedGraph
from litz.compilation.fallback import Fallback
from litz.debug import NO_INSTRUMENTS, Instruments
from litz.host.runtime.gpus import gpus_among
from litz.host.runtime.graph_devices import device_kinds, first_gpu, tensors_of
from litz.host.runtime.precision import warn_about_bf16
from litz.loading import Compiled
from litz.pipeline import SERVICE, CapturedGraph, Scheme, Stages
from litz.reports.failures import Failures, GraphSource
from litz.settings import Config
from litz.targets import targets_for
from litz_ir.errors import LitzError, NotCompiled, stage
from litz_ir.fused import Decision
from litz_ir.loops import LoopGraph
from litz_lowering import gpus_of

if TYPE_CHECKING:
    from litz.schemes.isolated import Isolated

_ISOLATED = "litz.schemes.isolated"
"""Module of compilation in child processes; loaded where the options ask for it."""

EVERYTHING = "*"
"""Stands for all operations of a graph among demoted nodes."""


@dataclass(slots=True)
class Compilation:
    """The compilation of one graph. An instance belongs to one thread."""

    gm: GraphModule
    """Graph of ATen operations."""

    name: str
    """Name of the graph in messages and tracebacks."""

    config: Config
    """Options of the compilation."""

    cache: ArtifactCache
    """Cache of compiled graphs."""

    frozen: frozenset[str] = frozenset()
    """Placeholders assumed equal from call to call; see :class:`~litz.pipeline.CapturedGraph`."""

    donated: frozenset[str] = frozenset()
    """Placeholders whose memory may be reused."""

    saved: frozenset[str] = frozenset()
    """Nodes whose results may have other strides than eager's."""

    demoted: frozenset[str] = frozenset()
    """Nodes that run as ATen since a self-check found their kernels wrong."""

    decisions: tuple[Decision, ...] = ()
    """Decisions of users' passes over the graph, for its report."""

    instruments: Instruments = NO_INSTRUMENTS
    """Hooks and limits that a debugging tool asks for."""

    behind: bool = False
    """True where the caller completes the compilation later, if it needs more than the cache and lowering."""

    scheme: Scheme | None = None
    """The way to run the stages; by default the one of the options whose result is complete when it returns."""

    failures: Failures = field(init=False)
    """Failure policy for this graph."""

    stages: Stages | None = field(init=False, default=None)
    """The stages; ``None`` before :meth:`run`."""

    cached: CachedGraph | None = field(init=False, default=None)
    """The graph's cache entries; ``None`` before :meth:`run`."""

    def __post_init__(self) -> None:
        source = GraphSource(self.gm, self.name, False, self.frozen, self.donated, self.saved)
        self.failures = self.cache.failures.of(source)

    @property
    def loops(self) -> LoopGraph | None:
        """The loop graph of the last lowering; ``None`` without one."""
        return None if self.stages is None else self.stages.loops

    def run(self) -> Compiled:
        """Compile the graph or load it from the cache; operations that fail run as ATen, as ``config.fallback``
        says."""
        warn_about_bf16(tensors_of(self.gm))
        devices = gpus_of(self.gm)
        gpus = gpus_among(devices)
        with first_gpu(devices):
            with stage("target"):
                targets = targets_for(device_kinds(self.gm), self.config)
            given = (self.frozen, self.donated, self.saved, self.decisions)
            captured = CapturedGraph(self.gm, self.name, *given)
            self.stages = Stages(
                captured,
                self.config,
                self.cache,
                targets,
                self.failures,
                gpus,
                demoted=self.demoted | self.instruments.forced,
                instruments=self.instruments,
            )
            return self._run(self.stages)

    def _run(self, stages: Stages) -> Compiled:
        """Run the stages unless the cache suffices."""
        self.cached = CachedGraph(stages)
        known = self.cached.known()
        self.demoted = stages.demoted
        if EVERYTHING in self.demoted:
            raise NotCompiled(f"a self-check found results of {self.name} wrong")
        found = self.cached.loaded(known)
        if found is not None:
            return found
        if known.suffices:
            known = replace(known, artifact=None)  # loading it failed
        children = self._children(stages)
        rounds = Fallback(stages, self.cached, known, self.scheme or children)
        if self.behind and children is not None and self._lowers(children, stages):
            return Compiled(run_in_aten(self.gm), None, later=partial(self._complete, rounds))
        service = import_module(SERVICE).compile_service()
        with service.watch.graph(self.config.progress_bar):
            return rounds.run()

    def _children(self, stages: Stages) -> Isolated | None:
        """Return the scheme of child processes, where the options ask for it; ``None`` for this process."""
        if not (self.behind or self.config.compile_scheme == "subprocess"):
            return None
        made: Isolated | None = import_module(_ISOLATED).isolated(stages)
        return made

    def _lowers(self, children: Isolated, stages: Stages) -> bool:
        """Lower the graph for a later compilation; report whether that succeeds, else :class:`Fallback` handles it."""
        try:
            children.lower(stages)
        except LitzError:
            return False
        return True

    def _complete(self, rounds: Fallback) -> Compiled:
        """Run what is left of a compilation, on the graph's device."""
        with first_gpu(gpus_of(self.gm)):
            return rounds.run()

    def demote(self, nodes: frozenset[str]) -> None:
        """Make nodes run as ATen whenever this graph is compiled, by this process or a later one.

        Names that are not nodes of the graph, such as those of subgraphs and of nodes that passes make, are stored
        as they are.
        """
        self.demoted |= nodes
        if self.cached is not None:
            self.cached.demote(nodes)
