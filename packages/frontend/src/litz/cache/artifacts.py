"""Two levels of cache: graph to plan, source to binary."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import weakref
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.compiler.config
from torch.fx import GraphModule

from litz.artifact import AotWrapping, Artifact, AtenFallback, CompiledCapture
from litz.cache.key import Registered, graph_key, registered_with, target_identity, text_key, versions
from litz.cache.name_sets import DEMOTIONS, NameSets
from litz.cache.store import Store
from litz.cache.tiles import TileChoices
from litz.failures import Failures, GraphSource
from litz.notices import log_once
from litz.settings import Config
from litz.targets import TargetSet, devices_of
from litz_ir.errors import CacheError, CompilerNotFound
from litz_ir.plan import Plan
from litz_ir.serial import from_json, to_json
from litz_ir.target import Capabilities, SourceUnit, Target
from litz_scheduler import SchedulerOptions

log = logging.getLogger(__name__)

PLAN, SUMMARY, BINARY, FX_GRAPH_FILE = "plan.json", "summary.json", "unit", "fx_graph.json"
FOLDERS = ("graphs", "binaries", "fx_graphs", "tiles", "matmuls", "demotions")


@dataclass(slots=True, weakref_slot=True)
class ArtifactCache:
    """Compiled graphs of one process and, when ``graphs`` and ``binaries`` are given, of those before it.
    ``fx_graphs`` knows graphs by what Dynamo captured (``litz.capture.fx_graph_cache``), ``tiles`` and
    ``matmul_choices`` what tuning found, ``demotions`` the operations whose kernels a self-check found wrong.

    ``failures`` are told of what cannot be read or written. Without a folder that can be used, everything is built in a
    temporary one that lives as long as the process.
    """

    graphs: Store | None
    binaries: Store | None
    fx_graphs: Store | None = None
    tiles: TileChoices = field(default_factory=TileChoices)
    matmul_choices: NameSets = field(default_factory=NameSets)
    demotions: NameSets = field(default_factory=NameSets)
    failures: Failures = field(default_factory=lambda: Failures(Config()))
    scratch: Path | None = None
    built: dict[str, Path] = field(default_factory=dict)

    @staticmethod
    def open(config: Config, source: GraphSource | None = None) -> ArtifactCache:
        """The cache that ``config`` asks for, for the graph ``source``; a folder that cannot be used is said once and
        done without. Nothing is read or written where torch is told to disable all caches."""
        failures = Failures(config, source)
        if config.cache and not torch.compiler.config.force_disable_caches:
            try:
                root = config.cache_root()
                stores = [Store(root / name) for name in FOLDERS]
                if not all(store.writable for store in stores):
                    log_once(f"litz: {root} cannot be written: nothing new is kept there", logging.INFO)
                graphs, binaries, captures, tiles, products, demotions = stores
                choices = TileChoices(tiles), NameSets(products), NameSets(demotions, DEMOTIONS)
                return ArtifactCache(graphs, binaries, captures, *choices, failures)
            except CacheError as error:
                log_once(str(error))
            except Exception as error:
                failures.report(error, "cache", "nothing is kept on disk")
        return ArtifactCache(None, None, failures=failures)

    def key(
        self, gm: GraphModule, config: Config, targets: TargetSet, options: SchedulerOptions,
        held: Collection[str] = (), donated: Collection[str] = (), saved: Collection[str] = (),
        demoted: Collection[str] = (),
    ) -> str:  # fmt: skip
        """The digest of all that the compiled graph depends on; ``held``, ``donated`` and ``saved`` as in
        :func:`litz_lowering.lower`, ``demoted`` as a record of the cache names operations."""
        places = [
            f"{what} {[k for k, node in enumerate(gm.graph.nodes) if node.name in names]}"
            for what, names in (("held", held), ("donated", donated), ("saved", saved))
        ]
        places += [f"demoted {sorted(demoted)}"] if demoted else []
        return graph_key(gm, config, [*self.facts(targets, options), *places])

    def uncacheable(self, targets: TargetSet) -> str:
        """Why nothing that is compiled now can be kept, empty where it can: a program registered something that has no
        identity. It is told once."""
        if self.graphs is None:
            return ""
        why = registered_with(targets.by_kind.values()).uncacheable
        if why:
            log_once(f"litz: graphs are not kept on disk: {why}", logging.INFO)
        return why

    def facts(self, targets: TargetSet, options: SchedulerOptions) -> list[str]:
        """What every compiled graph depends on: versions, machines, what is registered, and the scheduler's options."""
        facts = list(versions())
        facts += [f"{device} {_facts(known)}" for device, known in targets.capabilities().items()]
        return [*facts, *registered_with(targets.by_kind.values()).facts, _facts(options)]

    def read(self, key: str, targets: TargetSet) -> Artifact | None:
        """The artifact of a key, its binaries included, or ``None``."""
        files = self.graphs.read(key) if self.graphs is not None else None
        if files is None:
            return None
        try:
            plan = from_json(files[PLAN].decode())
            summary = json.loads(files[SUMMARY])
            units = tuple(_unit(item) for item in summary["units"])
            left = tuple(AtenFallback(**item) for item in summary["fallbacks"])
            assert isinstance(plan, Plan)
            devices = devices_of(units, plan)
            binaries = tuple(self.binary(unit, targets[at[0]]) for unit, at in zip(units, devices))
        except CompilerNotFound:
            raise
        except Exception as error:
            self._refuse(self.graphs, key, error)
            return None
        return Artifact(key, plan, units, binaries, left, cached=True)

    def write(self, artifact: Artifact) -> None:
        """Keep an artifact; the binaries are kept by :meth:`binary` as they are built."""
        if self.graphs is None:
            return
        summary: dict[str, Any] = {
            "units": [_unit_data(unit) for unit in artifact.units],
            "fallbacks": [
                {"target": left.target, "reason": left.reason, "line": left.line}
                for left in artifact.fallbacks
            ],
        }
        self.graphs.write(
            artifact.key, {PLAN: to_json(artifact.plan).encode(), SUMMARY: json.dumps(summary).encode()}
        )

    def lookup_fx_graph(self, capture: str, targets: TargetSet) -> CompiledCapture | None:
        """What :meth:`store_fx_graph` tied to a capture, or ``None``."""
        files = self.fx_graphs.read(capture) if self.fx_graphs is not None else None
        if files is None:
            return None
        try:
            facts = json.loads(files[FX_GRAPH_FILE])
            outputs, *places = (facts[each.name] for each in fields(AotWrapping))
            wrapping = AotWrapping(int(outputs), *(tuple(map(int, each)) for each in places))
            keys = [str(facts[half]) for half in ("forward", "backward") if facts[half] is not None]
        except Exception as error:
            self._refuse(self.fx_graphs, capture, error)
            return None
        halves = [self.read(key, targets) for key in keys]
        if not halves or halves[0] is None or halves[-1] is None:
            return None
        return CompiledCapture(halves[0], wrapping, halves[1] if len(halves) > 1 else None)

    def drop(self, artifact: Artifact) -> None:
        """Drop an artifact and its binaries, which turned out to be of no use."""
        if self.graphs is not None and artifact.key:
            self.graphs.drop(artifact.key)
        for path in artifact.binaries:
            if self.binaries is not None and path.parent.parent == self.binaries.folder:
                self.binaries.drop(path.parent.name)

    def _refuse(self, store: Store | None, key: str, error: Exception) -> None:
        """Drop an entry that is whole and cannot be used all the same."""
        assert store is not None
        path = store.folder / key
        log.warning(
            "cache entry %s cannot be used and is taken for a miss: %s: %s", path, type(error).__name__, error
        )
        store.drop(key)

    def store_fx_graph(self, capture: str, compiled: CompiledCapture) -> None:
        """Tie a graph as Dynamo captured it to what was compiled for it."""
        backward = compiled.backward
        if self.fx_graphs is None or not compiled.forward.key or (backward is not None and not backward.key):
            return
        facts: dict[str, Any] = {
            "forward": compiled.forward.key,
            "backward": None if backward is None else backward.key,
            **asdict(compiled.wrapping),
        }
        self.fx_graphs.write(capture, {FX_GRAPH_FILE: json.dumps(facts).encode()})

    def binary(self, unit: SourceUnit, target: Target) -> Path:
        """The built file of a source: from the cache, else built now and kept. Raises ``ToolchainError``."""
        builder = target_identity(target)
        store = None if builder.uncacheable else self.binaries
        key = _key(unit, builder)
        if key in self.built:
            return self.built[key]
        find = partial(_found_binary, store, key)
        found = self.failures.attempt("cache", find, None, "the unit is built anew")
        if found is not None:
            return found
        with tempfile.TemporaryDirectory(prefix="litz-") as workspace:
            path = target.build(unit, Path(workspace))
            keep = partial(_kept_binary, store, key, path)
            kept = self.failures.attempt("cache", keep, None, "the unit is not kept on disk")
            if kept is not None:
                return kept
            self.built[key] = Path(shutil.copy(path, tempfile.mkdtemp(dir=self._own_folder())))
            return self.built[key]

    def _own_folder(self) -> Path:
        """A folder that lives as long as this cache."""
        if self.scratch is None:
            self.scratch = Path(tempfile.mkdtemp(prefix="litz-"))
            weakref.finalize(self, _remove, self.scratch)
        return self.scratch


def _key(unit: SourceUnit, builder: Registered) -> str:
    """The key of a unit's binary, as this target builds it."""
    return text_key(
        unit.language, unit.text, *unit.flags, *builder.facts, *filter(None, [builder.uncacheable])
    )


def _found_binary(store: Store | None, key: str) -> Path | None:
    files = store.read(key) if store is not None else None
    return store.path(key, next(iter(files))) if store is not None and files else None


def _kept_binary(store: Store | None, key: str, path: Path) -> Path | None:
    if store is None:
        return None
    # Another process may keep the same source meanwhile, which it calls after a graph of its own.
    name = f"{BINARY}{path.suffix}"
    written = store.write(key, {name: path.read_bytes()})
    return store.path(key, name) if written else None


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _facts(known: Capabilities | SchedulerOptions) -> str:
    """Capabilities or options as text that is the same in every process: sets have no order of their own."""
    parts = []
    for item in fields(known):
        value = getattr(known, item.name)
        parts.append(f"{item.name}={sorted(map(str, value)) if isinstance(value, frozenset) else value}")
    return " ".join(parts)


def _unit_data(unit: SourceUnit) -> dict[str, Any]:
    return {
        "name": unit.name, "language": unit.language, "text": unit.text, "kernels": list(unit.kernels),
        "flags": list(unit.flags),
    }  # fmt: skip


def _unit(data: dict[str, Any]) -> SourceUnit:
    return SourceUnit(
        str(data["name"]),
        str(data["language"]),
        str(data["text"]),
        tuple(data["kernels"]),
        tuple(data["flags"]),
    )
