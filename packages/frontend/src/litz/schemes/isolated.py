"""The schemes of child processes: graphs are lowered here, and scheduled, emitted and built there."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from litz.loading import Compiled
from litz.notices import log_once
from litz.pipeline import Finish, Progress, Stages
from litz.schemes.remote import RemoteCompilation, obstacle
from litz.service.service import CompileService, compile_service
from litz_lowering import LoweredGraph


@dataclass(slots=True)
class Isolated:
    """Compilation in child processes, whose end by a signal, hang or hunger for memory this process survives."""

    service: CompileService
    """Owner of the children."""

    lowered: LoweredGraph | None = None
    """The lowered graph of the first round, where :meth:`lower` has made it."""

    def lower(self, stages: Stages) -> None:
        """Lower a graph before :meth:`run`, in the thread whose FakeTensors and symbols it has; raise ``LitzError``."""
        self.lowered = stages.lower(stages.demoted)

    def run(self, stages: Stages, progress: Progress, forced: frozenset[str], finish: Finish) -> Compiled:
        """Compile and load a graph; raise ``LitzError``."""
        lowered = progress.lowered = self.lowered or stages.lower(forced)
        self.lowered = None
        plan, jobs, binaries = RemoteCompilation(stages, self.service).planned_and_built(lowered, progress)
        artifact = progress.artifact = stages.artifact(lowered, plan, jobs, binaries)
        better = finish(lowered, artifact)
        return stages.load(artifact, lowered.constants, lowered.routines, better)


def isolated(stages: Stages) -> Isolated | None:
    """Return the scheme for a graph; ``None``, and a log line, where a child cannot compile it."""
    why = obstacle(stages)
    if why:
        log_once(f"litz: graphs are compiled in this process, although compile_scheme is "
                 f"{stages.config.compile_scheme!r}: {why}", logging.INFO)  # fmt: skip
        return None
    return Isolated(compile_service())
