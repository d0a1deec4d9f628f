"""The cache around the stages: lookup before they run, and storage of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import torch

from litz.artifact import Artifact
from litz.loading import NO_CONSTANTS, Compiled
from litz.pipeline import Stages
from litz.stage_options import chooses_matmuls
from litz_ir.plan import plans_in

if TYPE_CHECKING:
    from litz_lowering import LoweredGraph

_CONSTANTS = "litz.compilation.constants"
"""Module that finds constants in captured modules; loaded where a graph has some."""


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """The cache's entries for a graph, read before it is compiled."""

    matmul_key: str
    """Key of the graph's choice of matmuls; empty where the graph is not cached."""

    artifact: Artifact | None
    """The cached artifact, or ``None``."""

    generated: frozenset[str] | None
    """Matmuls found faster when generated; ``None`` where they have not been timed."""

    @property
    def suffices(self) -> bool:
        """True where the artifact can be loaded without lowering, and no search is due."""
        found = self.artifact
        if self.generated is None or found is None:
            return False
        known = {name for name, _ in found.attributes}
        return all(each.name in known for plan in plans_in(found.plan) for each in plan.constants)


@dataclass(slots=True)
class CachedGraph:
    """The cache entries of one graph."""

    stages: Stages
    """Stages of the graph, which get the results of the lookup."""

    demotion_key: str = field(init=False, default="")
    """Key of the graph's demoted operations; empty where the graph is not cached."""

    def known(self) -> CacheLookup:
        """Read the cache, as a miss where that fails; set key, demoted nodes and generated matmuls of the stages."""
        stages, cache = self.stages, self.stages.cache
        attempt = stages.failures.attempt
        instead = f"{stages.captured.name} is not cached on disk"
        if stages.instruments.fuel is not None:
            stages.uncacheable = "its transformations are limited"
            return CacheLookup("", None, frozenset())
        stages.uncacheable = attempt("cache", lambda: cache.uncacheable(stages.targets), "", instead)
        if stages.uncacheable:
            return CacheLookup("", None, frozenset())
        # The donated inputs of a backward depend on the plan of its forward and do not affect the choice of matmuls.
        matmul_key = self.demotion_key = attempt(
            "cache", lambda: self.key(frozenset(), frozenset()), "", instead
        )
        if matmul_key:
            stages.demoted |= attempt(
                "cache", self._earlier_demotions, frozenset[str](), "no operation is demoted"
            )
        generated: frozenset[str] | None = frozenset()
        if matmul_key and chooses_matmuls(stages.config, stages.targets, stages.gpus):
            generated = attempt(
                "cache",
                lambda: cache.matmul_choices.read(matmul_key),
                generated,
                "matmuls are library calls",
            )
        stages.generated = generated or stages.generated
        if not matmul_key:
            return CacheLookup("", None, generated)
        donated = stages.captured.donated
        if donated or stages.demoted or stages.generated:
            stages.key = attempt("cache", lambda: self.key(donated, stages.demoted), "", instead)
        else:
            stages.key = matmul_key
        key = stages.key
        if stages.instruments.anew:
            return CacheLookup(matmul_key, None, generated)
        read = partial(stages.timed, "cache", lambda: cache.read(key, stages.targets, stages.captured.gm))
        anew = f"{stages.captured.name} is recompiled"
        return CacheLookup(matmul_key, attempt("cache", read, None, anew) if key else None, generated)

    def loaded(self, known: CacheLookup) -> Compiled | None:
        """Load the cached artifact; return ``None`` where it does not suffice or does not load."""
        found = known.artifact
        if found is None or not known.suffices:
            return None
        try:
            return self.stages.load(found, self._constants(found))
        except Exception as error:
            name = self.stages.captured.name
            self.stages.failures.report(error, "load", f"the cached artifact of {name} is recompiled")
            self.stages.cache.drop(found)
            return None

    def key(self, donated: frozenset[str], demoted: frozenset[str]) -> str:
        """Return the key of the graph's artifact for these donated inputs and demoted nodes."""
        stages, graph = self.stages, self.stages.captured
        named = (graph.frozen, donated, graph.saved, self._numbered(demoted))
        return stages.cache.key(graph.gm, stages.config, stages.targets, stages.options(), *named)

    def key_parts(self) -> bytes:
        """Return the parts of the key of the graph's artifact, as JSON."""
        stages, graph = self.stages, self.stages.captured
        named = (graph.frozen, graph.donated, graph.saved, self._numbered(stages.demoted))
        given = (graph.gm, graph.name, stages.config, stages.targets, stages.options())
        return stages.cache.key_parts(*given, *named)

    def store(self, work: Callable[[], object]) -> None:
        """Run ``work``, which writes to the cache; a failure is reported and costs the entry alone."""
        stages = self.stages
        instead = f"{stages.captured.name} is not cached on disk"
        stages.failures.attempt("store", partial(stages.timed, "store", work), None, instead)

    def store_artifact(self, artifact: Artifact, lowered: LoweredGraph) -> None:
        """Write an artifact to the cache, unless it calls functions of this process."""
        if lowered.routines:
            return
        if lowered.constants:
            find = import_module(_CONSTANTS).attribute_positions
            artifact = replace(artifact, attributes=find(self.stages.captured.gm, lowered.constants) or ())
        self.store(lambda: self.stages.cache.write(artifact, self.key_parts()))

    def demote(self, nodes: frozenset[str]) -> None:
        """Add nodes to the graph's demoted operations, and to their cache entry where there is one."""
        stages = self.stages
        stages.demoted |= nodes
        if self.demotion_key:
            numbered = self._numbered(stages.demoted)
            self.store(partial(stages.cache.demotions.add, self.demotion_key, numbered))

    def _constants(self, artifact: Artifact) -> Mapping[str, torch.Tensor]:
        """Return the constants of a cached artifact, which the captured module has."""
        if not artifact.attributes:
            return NO_CONSTANTS
        found: dict[str, torch.Tensor] = import_module(_CONSTANTS).constants_at(
            self.stages.captured.gm, artifact.attributes
        )
        return found

    def _earlier_demotions(self) -> frozenset[str]:
        """Return the nodes demoted by earlier compilations."""
        found = self.stages.cache.demotions.read(self.demotion_key)
        if not found:
            return frozenset()
        names = [node.name for node in self.stages.captured.gm.graph.nodes]
        return frozenset(names[int(each[1:])] if each.startswith("%") else each for each in found)

    def _numbered(self, nodes: frozenset[str]) -> frozenset[str]:
        """Return nodes by position, since graphs with the same key may have other node names."""
        if not nodes:
            return nodes
        positions = {
            node.name: f"%{position}" for position, node in enumerate(self.stages.captured.gm.graph.nodes)
        }
        return frozenset(positions.get(name, name) for name in nodes)
