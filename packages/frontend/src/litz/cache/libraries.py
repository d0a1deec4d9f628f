"""Libraries that units link: built once, and found in the cache as other binaries are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from litz_ir.errors import CompileFailed, CompileTimeout
from litz_ir.target import LinkingTarget, SourceUnit, Target

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
