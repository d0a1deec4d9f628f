"""Libraries that units link, or that launch kernels: built once, and found in the cache as other binaries are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from litz.notices import log_once
from litz.settings import Config
from litz_ir.errors import CompileFailed, CompileTimeout
from litz_ir.target import LaunchingTarget, LinkingTarget, SourceUnit, Target

if TYPE_CHECKING:
    from litz_ir.loops import LoopGraph

log = logging.getLogger("litz")

Job = tuple[SourceUnit, Target]
"""A source, and the target that compiles it."""


def libraries_of(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Return the libraries that units can link, each once."""
    return tuple(
        dict.fromkeys(
            (library, target)
            for unit, target in jobs
            if isinstance(target, LinkingTarget)
            for library in target.libraries(unit)
        )
    )


def expected_libraries(graph: LoopGraph, targets: Iterable[Target]) -> tuple[Job, ...]:
    """Return the libraries that the kernels of a graph probably link."""
    return tuple(
        (library, target)
        for target in targets
        if isinstance(target, LinkingTarget)
        for library in target.expected_libraries(graph)
    )


def build(
    unit: SourceUnit, target: Target, folder: Path, binary: Callable[[SourceUnit, Target], Path]
) -> Path:
    """Build a source in ``folder`` with the libraries that it links, which ``binary`` finds or builds.

    Where a compiler refuses that, the unit is compiled with all that it calls. Raises ``ToolchainError``.
    """
    if isinstance(target, LinkingTarget):
        try:
            libraries = [binary(library, target) for library in target.libraries(unit)]
            if libraries:
                return target.build_linked(unit, libraries, folder)
        except CompileTimeout:
            raise
        except CompileFailed as error:
            log.info("litz: %s is compiled without libraries: %s", unit.name, error.message)
    return target.build(unit, folder)


_ARTIFACTS = "litz.cache.artifacts"
"""Module of the cache, which this one is part of."""

Found = tuple[SourceUnit, Path]
"""A source and its binary."""


class Launchers:
    """The libraries of ``LaunchingTarget``: each is looked for once a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[object, Found | None] = {}
        self._caches: list[object] = []  # a cache without a folder deletes its binaries with itself

    def prepare(self, targets: Iterable[Target], config: Config) -> None:
        """Find or build the libraries of targets in the background, each in a thread of its own."""
        for target in targets:
            if isinstance(target, LaunchingTarget):
                threading.Thread(target=self.of, args=(target, config)).start()

    def of(self, target: Target, config: Config) -> Found | None:
        """Return the library of a target, from the cache or built now.

        Waits while a thread looks for a library or builds one. ``None`` where the target has none or none is built.
        """
        if not isinstance(target, LaunchingTarget):
            return None
        unit = target.launcher_unit()
        key = (unit, config.compiler, str(config.cache_root()) if config.uses_disk else "")
        with self._lock:
            if key not in self._found:
                self._found[key] = self._built(unit, target, config)
            return self._found[key]

    def _built(self, unit: SourceUnit, target: Target, config: Config) -> Found | None:
        """Find or build a library; failures are logged once."""
        try:
            cache = import_module(_ARTIFACTS).ArtifactCache.open(config)
            path: Path = cache.binary(unit, target)
        except Exception as error:
            log_once(f"litz: kernels are launched by Python, which takes longer: {error}", logging.INFO)
            return None
        self._caches.append(cache)
        return unit, path


launchers = Launchers()
