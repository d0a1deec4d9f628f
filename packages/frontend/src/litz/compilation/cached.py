"""The cache around the stages: what is known of a graph before they run, and what is kept of it after them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from litz.artifact import Artifact
from litz.loading import Compiled
from litz.pipeline import Stages
from litz.stage_options import chooses_matmuls
from litz_ir.plan import plans_in
from litz_lowering import LoweredGraph


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """What is known of a graph before it is compiled: the key of what was ``timed``, empty where the graph is not kept;
    the ``artifact`` that was; the products that were ``chosen``, None where nobody has tried."""

    timed: str
    artifact: Artifact | None
    chosen: frozenset[str] | None

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
class CachedGraph:
    """The entries of one graph in a cache; ``record`` is the key of what is demoted, empty where there is none."""

    stages: Stages
    record: str = field(init=False, default="")

    def known(self) -> CacheLookup:
        """What the cache holds; nothing where it fails. The stages get the key of the artifact to be, what is demoted
        and the products that were chosen."""
        stages, cache = self.stages, self.stages.cache
        attempt = stages.failures.attempt
        instead = f"{stages.captured.name} is not kept on disk"
        stages.unkept = attempt("cache", lambda: cache.uncacheable(stages.targets), "", instead)
        if stages.unkept:
            return CacheLookup("", None, frozenset())
        # What a backward is given changes with how its forward is planned, and says nothing of products.
        timed = self.record = attempt("cache", lambda: self.key(frozenset(), frozenset()), "", instead)
        if timed:
            stages.demoted |= attempt("cache", self._on_record, frozenset[str](), "nothing is demoted")
        chosen: frozenset[str] | None = frozenset()
        if timed and chooses_matmuls(stages.config, stages.targets, stages.gpus):
            chosen = attempt("cache", lambda: cache.matmul_choices.read(timed), chosen, "products are called")
        stages.products = chosen or stages.products
        if not timed:
            return CacheLookup("", None, chosen)
        donated = stages.captured.donated
        key = stages.key = attempt("cache", lambda: self.key(donated, stages.demoted), "", instead)
        read = partial(stages.timed, "cache", lambda: cache.read(key, stages.targets))
        anew = f"{stages.captured.name} is compiled anew"
        return CacheLookup(timed, attempt("cache", read, None, anew) if key else None, chosen)

    def loaded(self, known: CacheLookup) -> Compiled | None:
        """The artifact that is known as a callable; ``None`` where more is wanted, or it does not load."""
        if known.artifact is None or not known.suffices:
            return None
        try:
            return self.stages.load(known.artifact)
        except Exception as error:
            name = self.stages.captured.name
            self.stages.failures.report(error, "load", f"what was kept of {name} is compiled anew")
            self.stages.cache.drop(known.artifact)
            return None

    def key(self, donated: frozenset[str], demoted: frozenset[str]) -> str:
        """The key of the graph's artifact where these inputs may be written over, and these nodes run as ATen."""
        stages, graph = self.stages, self.stages.captured
        named = (graph.held, donated, graph.saved, self._numbered(demoted))
        return stages.cache.key(graph.gm, stages.config, stages.targets, stages.options(), *named)

    def keep(self, work: Callable[[], object]) -> None:
        """Keep something on disk, if that can be done."""
        stages = self.stages
        instead = f"{stages.captured.name} is not kept on disk"
        stages.failures.attempt("store", partial(stages.timed, "store", work), None, instead)

    def keep_artifact(self, artifact: Artifact, lowered: LoweredGraph) -> None:
        """Keep an artifact, unless it calls functions of this process."""
        if not lowered.routines:
            self.keep(partial(self.stages.cache.write, artifact))

    def demote(self, nodes: frozenset[str]) -> None:
        """Add nodes to the record of what is demoted, where there is one."""
        stages = self.stages
        stages.demoted |= nodes
        if self.record:
            numbered = self._numbered(stages.demoted)
            self.keep(partial(stages.cache.demotions.add, self.record, numbered))

    def _on_record(self) -> frozenset[str]:
        """The nodes that were demoted before."""
        found = self.stages.cache.demotions.read(self.record)
        if not found:
            return frozenset()
        names = [node.name for node in self.stages.captured.gm.graph.nodes]
        return frozenset(names[int(each[1:])] if each.startswith("%") else each for each in found)

    def _numbered(self, nodes: frozenset[str]) -> frozenset[str]:
        """Nodes by their positions, since graphs of one key may differ in names."""
        if not nodes:
            return nodes
        positions = {
            node.name: f"%{position}" for position, node in enumerate(self.stages.captured.gm.graph.nodes)
        }
        return frozenset(positions.get(name, name) for name in nodes)
