"""The cache, in two levels: graphs to plans, sources to binaries."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from litz.artifact import AotWrapping, Artifact, AtenFallback, CompiledCapture, unit_data, unit_from
from litz.cache.key import (
    NOTHING,
    Registered,
    graph_key,
    registered_with,
    target_identity,
    text_key,
    versions,
)
from litz.cache.libraries import build
from litz.cache.name_sets import DEMOTIONS, NameSets
from litz.cache.store import Entries
from litz.cache.tiles import TileChoices
from litz.notices import log_once
from litz.passes import NO_PASSES, Passes
from litz.reports.failures import Failures, GraphSource
from litz.settings import Config
from litz.targets import TargetSet, devices_of
from litz_ir.errors import CacheError, CompilerNotFound
from litz_ir.plan import Plan
from litz_ir.serial import from_json, to_json
from litz_ir.target import Capabilities, SourceUnit, Target
from litz_scheduler import SchedulerOptions

log = logging.getLogger(__name__)

PLAN, SUMMARY, KEY_FILE, BINARY, FX_GRAPH_FILE = (
    "plan.json",
    "summary.json",
    "key.json",
    "unit",
    "fx_graph.json",
)
"""Names of the files of an entry."""

_LOWERINGS = "litz.lowering.installed"
"""Module of the lowerings of installed packages, which keys contain; loaded when a cache is opened."""

_LAYERS, _KEY_PARTS = "litz.cache.layers", "litz.cache.key_parts"
"""Modules of the tiers of the cache, and of the parts of keys; loaded when a cache is opened, and for a miss."""

_KERNELS, _LAUNCH = "litz.cache.triton_kernels", b'"triton_kernel"'
"""Module of Triton kernels of the program; loaded where a plan launches some, by this routine."""

_CONSTANTS = "litz.cache.constants"
"""Module that writes and reads constants; loaded where a graph has some."""

_PASSES = "litz.passes.in_force"
"""Module of the passes of a compilation; loaded when a cache is opened, since ``import litz`` does not need it."""


@dataclass(slots=True, weakref_slot=True)
class ArtifactCache:
    """Compiled graphs of this process and, where ``graphs`` and ``binaries`` are given, of earlier ones.

    Without a folder that can be used, binaries are built in a temporary one that is deleted with the cache.
    """

    graphs: Entries | None
    """Plans by graph key; ``None`` without a folder."""

    binaries: Entries | None
    """Compiled sources by source key; ``None`` without a folder."""

    fx_graphs: Entries | None = None
    """Graphs by the key of Dynamo's graph; see :mod:`litz.capture.fx_graph_cache`."""

    tiles: TileChoices = field(default_factory=TileChoices)
    """Schedules found by autotuning."""

    matmul_choices: NameSets = field(default_factory=NameSets)
    """Matmuls that autotuning found faster when generated, by graph."""

    demotions: NameSets = field(default_factory=NameSets)
    """Operations whose kernels a self-check found wrong, by graph."""

    failures: Failures = field(default_factory=lambda: Failures(Config()))
    """Failure policy for reading and writing."""

    passes: Passes = NO_PASSES
    """Passes of users that graphs are compiled with."""

    passes_identity: Registered = NOTHING
    """Their identifiers."""

    scratch: Path | None = None
    """Temporary folder of binaries; ``None`` before the first."""

    built: dict[str, Path] = field(default_factory=dict)
    """Paths of binaries in the temporary folder, by key."""

    @staticmethod
    def open(config: Config, source: GraphSource | None = None) -> ArtifactCache:
        """Open the cache that ``config`` names, for the graph ``source``.

        A folder that cannot be used is reported once and not used. Nothing is read or written where torch's
        ``force_disable_caches`` is set. Raises ``ConfigError`` for passes of installed packages that cannot be loaded,
        ``UserPassError`` for a pass whose ``uuid`` fails and, under ``fallback="error"``, for lowerings of installed
        packages that cannot be loaded.
        """
        for problem in import_module(_LOWERINGS).load_installed():
            if config.fallback == "error":
                raise problem
            log_once(
                f"litz: {problem.message}", logging.WARNING if config.fallback == "warn" else logging.DEBUG
            )
        opened = ArtifactCache._opened(config, Failures(config, source))
        in_force = import_module(_PASSES)
        passes: Passes = in_force.passes_in_force(config.passes, config.disable_passes)
        if passes:
            opened.passes, opened.passes_identity = passes, Registered(*in_force.pass_facts(passes))
        return opened

    @staticmethod
    def _opened(config: Config, failures: Failures) -> ArtifactCache:
        """Open the cache that ``config`` names, for a program without passes."""
        if config.uses_disk:
            try:
                tiers = import_module(_LAYERS).opened_tiers(config)
                if not all(each.writable for each in tiers):
                    root = config.cache_root()
                    log_once(f"litz: {root} cannot be written: nothing is added to the cache", logging.INFO)
                graphs, binaries, fx_graphs, tiles, matmuls, demotions = tiers
                choices = TileChoices(tiles), NameSets(matmuls), NameSets(demotions, DEMOTIONS)
                return ArtifactCache(graphs, binaries, fx_graphs, *choices, failures)
            except CacheError as error:
                log_once(str(error))
            except Exception as error:
                failures.report(error, "cache", "nothing is cached on disk")
        return ArtifactCache(None, None, failures=failures)

    def without_graphs(self) -> ArtifactCache:
        """Return a cache of the same binaries and passes that finds and stores no graph and nothing that depends on
        one."""
        return ArtifactCache(
            None,
            self.binaries,
            tiles=self.tiles,
            failures=self.failures,
            passes=self.passes,
            passes_identity=self.passes_identity,
        )

    def key(
        self, gm: GraphModule, config: Config, targets: TargetSet, options: SchedulerOptions,
        frozen: Collection[str] = (), donated: Collection[str] = (), saved: Collection[str] = (),
        demoted: Collection[str] = (),
    ) -> str:  # fmt: skip
        """Return the digest of everything that the compiled graph depends on.

        ``frozen``, ``donated`` and ``saved`` are as in :func:`litz_lowering.lower`; ``demoted`` names operations as
        :attr:`demotions` does.
        """
        positions = _positions(gm, frozen, donated, saved, demoted)
        return graph_key(gm, config, [*self.facts(targets, options), *positions])

    def key_parts(
        self, gm: GraphModule, name: str, config: Config, targets: TargetSet, options: SchedulerOptions,
        *named: Collection[str],
    ) -> bytes:  # fmt: skip
        """Return the parts of the key that :meth:`key` makes of the same arguments, as JSON."""
        capabilities = targets.capabilities().items()
        facts = {
            "chip": [f"{device} {_facts(known)}" for device, known in capabilities],
            "registered": [*registered_with(targets.by_kind.values()).facts, *self.passes_identity.facts],
            "scheduler": [_facts(options)],
        }
        parts = import_module(_KEY_PARTS).key_parts(gm, name, config, facts, _positions(gm, *named))
        text: bytes = parts.data()
        return text

    def uncacheable(self, targets: TargetSet) -> str:
        """Return the reason that graphs cannot be cached at present, logged once; empty where they can.

        The reason is an object without identity that a program registered, or a pass without an identifier.
        """
        if self.graphs is None:
            return ""
        why = registered_with(targets.by_kind.values()).uncacheable or self.passes_identity.uncacheable
        if why:
            log_once(f"litz: graphs are not cached on disk: {why}", logging.INFO)
        return why

    def facts(self, targets: TargetSet, options: SchedulerOptions) -> list[str]:
        """Return facts that every compiled graph depends on: versions, devices, registrations, scheduler options."""
        facts = list(versions())
        facts += [f"{device} {_facts(known)}" for device, known in targets.capabilities().items()]
        facts += registered_with(targets.by_kind.values()).facts
        return [*facts, *self.passes_identity.facts, _facts(options)]

    def read(self, key: str, targets: TargetSet, gm: GraphModule) -> Artifact | None:
        """Return a key's artifact with binaries, ``None`` if missing or damaged; ``gm`` is or contains the graph."""
        files = self.graphs.read(key) if self.graphs is not None else None
        if files is None:
            return None
        try:
            plan = from_json(files[PLAN].decode())
            summary = json.loads(files[SUMMARY])
            units = tuple(unit_from(item) for item in summary["units"])
            fallbacks = tuple(AtenFallback(**item) for item in summary["fallbacks"])
            attributes = tuple((str(name), tuple(map(int, at))) for name, at in summary["attributes"])
            assert isinstance(plan, Plan)
            if _LAUNCH in files[PLAN]:
                plan = import_module(_KERNELS).with_indices(plan, gm)
            devices = devices_of(units, plan)
            binaries = tuple(self.binary(unit, targets[at[0]]) for unit, at in zip(units, devices))
        except CompilerNotFound:
            raise
        except Exception as error:
            self._refuse(self.graphs, key, error)
            return None
        return Artifact(key, plan, units, binaries, fallbacks, cached=True, attributes=attributes)

    def write(self, artifact: Artifact, parts: bytes) -> None:
        """Store an artifact with the parts of its key; :meth:`binary` stores binaries as they are built."""
        if self.graphs is None:
            return
        summary: dict[str, Any] = {
            "units": [unit_data(unit) for unit in artifact.units],
            "fallbacks": [
                {"target": fallback.target, "reason": fallback.reason, "line": fallback.line}
                for fallback in artifact.fallbacks
            ],
            "attributes": artifact.attributes,
        }
        plan = to_json(artifact.plan).encode()
        if _LAUNCH in plan:
            plan = to_json(import_module(_KERNELS).with_digests(artifact.plan)).encode()
        texts = {PLAN: plan, SUMMARY: json.dumps(summary).encode()}
        self.graphs.write(artifact.key, {**texts, KEY_FILE: parts})

    def lookup_fx_graph(self, capture: str, targets: TargetSet, gm: GraphModule) -> CompiledCapture | None:
        """Return the compiled form of the graph ``gm`` that :meth:`store_fx_graph` stored, or ``None``."""
        files = self.fx_graphs.read(capture) if self.fx_graphs is not None else None
        if files is None:
            return None
        try:
            facts = json.loads(files[FX_GRAPH_FILE])
            outputs, *positions = (facts[each.name] for each in fields(AotWrapping))
            wrapping = AotWrapping(int(outputs), *(tuple(map(int, each)) for each in positions))
            keys = [str(facts[half]) for half in ("forward", "backward") if facts[half] is not None]
            described = facts["constants"]
            constants = import_module(_CONSTANTS).constants_in(described, files) if described else ()
        except Exception as error:
            self._refuse(self.fx_graphs, capture, error)
            return None
        halves = [self.read(key, targets, gm) for key in keys]
        if not halves or halves[0] is None or halves[-1] is None:
            return None
        return CompiledCapture(halves[0], wrapping, halves[1] if len(halves) > 1 else None, constants)

    def drop(self, artifact: Artifact) -> None:
        """Delete an artifact that cannot be used, and its binaries."""
        if self.graphs is not None and artifact.key:
            self.graphs.drop(artifact.key)
        for path in artifact.binaries:
            # Of the cache folder or of a layer, not of the temporary folder.
            if self.binaries is not None and path.parent.parent.name == self.binaries.folder.name:
                self.binaries.drop(path.parent.name)

    def _refuse(self, store: Entries | None, key: str, error: Exception) -> None:
        """Delete an intact entry that cannot be used, with a warning."""
        assert store is not None
        path = store.folder / key
        why = f"{type(error).__name__}: {error}"
        log.warning("cache entry %s cannot be used and counts as a cache miss: %s", path, why)
        store.drop(key)

    def store_fx_graph(self, capture: str, compiled: CompiledCapture) -> None:
        """Store the compiled form of a graph under the key of Dynamo's graph."""
        backward = compiled.backward
        if self.fx_graphs is None or not compiled.forward.key or (backward is not None and not backward.key):
            return
        constants = compiled.constants
        described, content = import_module(_CONSTANTS).files_of(constants) if constants else ([], {})
        facts: dict[str, Any] = {
            "forward": compiled.forward.key,
            "backward": None if backward is None else backward.key,
            **asdict(compiled.wrapping),
            "constants": described,
        }
        self.fx_graphs.write(capture, {FX_GRAPH_FILE: json.dumps(facts).encode(), **content})

    def binary(self, unit: SourceUnit, target: Target) -> Path:
        """Return the path of a source's binary, from the cache or built now; raise ``ToolchainError``."""
        found = self.find(unit, target)
        if found is not None:
            return found
        with tempfile.TemporaryDirectory(prefix="litz-") as workspace:
            return self.add_binary(unit, target, build(unit, target, Path(workspace), self.binary))

    def find(self, unit: SourceUnit, target: Target) -> Path | None:
        """Return the path of a source's binary in the cache, or ``None``."""
        key, store = self._key_and_store(unit, target)
        if key in self.built:
            return self.built[key]
        find = partial(self._found_binary, store, key)
        return self.failures.attempt("cache", find, None, "the unit is rebuilt")

    def add_binary(self, unit: SourceUnit, target: Target, path: Path) -> Path:
        """Copy the binary that was built of a source to the cache, and return its path there."""
        key, store = self._key_and_store(unit, target)
        store_binary = partial(_stored_binary, store, key, path)
        stored = self.failures.attempt("cache", store_binary, None, "the unit is not cached on disk")
        if stored is not None and not _forbids_execution(stored.parent):
            return stored
        self.built[key] = Path(shutil.copy(path, tempfile.mkdtemp(dir=self._own_folder())))
        return self.built[key]

    def _key_and_store(self, unit: SourceUnit, target: Target) -> tuple[str, Entries | None]:
        """Return the key of a source's binary, and the store that may have it."""
        builder = target_identity(target)
        return _key(unit, builder), None if builder.uncacheable else self.binaries

    def _found_binary(self, store: Entries | None, key: str) -> Path | None:
        """Return the path of a cached binary, or ``None``; that of a copy where the cache is mounted ``noexec``."""
        found = store.find(key) if store is not None else None
        if found is None or not found.files:
            return None
        name, data = next(iter(found.files.items()))
        if not _forbids_execution(found.folder):
            return found.folder / name
        copied = self.built[key] = Path(tempfile.mkdtemp(dir=self._own_folder())) / name
        copied.write_bytes(data)
        return copied

    def _own_folder(self) -> Path:
        """Return a temporary folder that is deleted with this cache."""
        if self.scratch is None:
            self.scratch = Path(tempfile.mkdtemp(prefix="litz-"))
            weakref.finalize(self, _remove, self.scratch)
        return self.scratch


def _positions(gm: GraphModule, *named: Collection[str]) -> list[str]:
    """Return the nodes that are frozen, donated and saved by position, and those that are demoted, as text."""
    *kinds, demoted = named
    positions = [
        f"{what} {[k for k, node in enumerate(gm.graph.nodes) if node.name in names]}"
        for what, names in zip(("frozen", "donated", "saved"), kinds)
    ]
    return positions + ([f"demoted {sorted(demoted)}"] if demoted else [])


def _key(unit: SourceUnit, builder: Registered) -> str:
    """Return the key of a unit's binary for this target."""
    return text_key(
        unit.language, unit.text, *unit.flags, *builder.facts, *filter(None, [builder.uncacheable])
    )


def _stored_binary(store: Entries | None, key: str, path: Path) -> Path | None:
    """Store a binary and return its path; ``None`` where that fails."""
    if store is None:
        return None
    # Another process may store the same source meanwhile, under a unit name of its own.
    name = f"{BINARY}{path.suffix}"
    written = store.write(key, {name: path.read_bytes()})
    return store.folder / key / name if written else None


def _forbids_execution(folder: Path) -> bool:
    """Report whether a folder is on a file system that is mounted ``noexec``."""
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)


def _remove(folder: Path) -> None:
    """Delete a folder."""
    shutil.rmtree(folder, ignore_errors=True)


def _facts(known: Capabilities | SchedulerOptions) -> str:
    """Return capabilities or options as text that is equal in every process: sets are sorted."""
    parts = []
    for item in fields(known):
        value = getattr(known, item.name)
        parts.append(f"{item.name}={sorted(map(str, value)) if isinstance(value, frozenset) else value}")
    return " ".join(parts)
