"""The schemes of child processes: graphs are lowered here, and scheduled, emitted and built there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch._guards import detect_fake_mode

from litz.loading import Compiled
from litz.notices import log_once
from litz.pipeline import Finish, Progress, Stages
from litz.schemes.remote import RemoteCompilation, obstacle
from litz.service.service import CompileService, compile_service
from litz_ir.errors import NotCompiled
from litz_lowering import LoweredGraph


class LoweringNeeded(BaseException):
    """Raised in the service's thread where a graph has to be lowered again: it has no FakeTensors.

    No handler of failures may treat it as one of the graph.
    """

    def __init__(self, lower: Callable[[], None]) -> None:
        super().__init__("the graph has to be lowered by a thread of the program")
        self.lower = lower
        """Lowers the graph, so that the compilation can go on; raises ``LitzError``."""


@dataclass(slots=True)
class Isolated:
    """Compilation in child processes, whose end by a signal, hang or hunger for memory this process survives."""

    service: CompileService
    """Owner of the children."""

    lowered: LoweredGraph | None = None
    """The lowered graph of the first round, where :meth:`lower` has made it."""

    behind: bool = False
    """True where :meth:`run` is called by the thread of the service, which raises :class:`LoweringNeeded` instead of
    lowering."""

    def lower(self, stages: Stages) -> None:
        """Lower a graph before :meth:`run`, in the thread whose FakeTensors and symbols it has; raise ``LitzError``."""
        self.lowered = stages.lower(stages.demoted)
        self.behind = True

    def lower_again(self, stages: Stages, forced: frozenset[str]) -> None:
        """Lower a graph with other nodes as ATen, in a thread of the program, after Dynamo has read the guards.

        Raises ``LitzError``, also where that needs more guards.
        """
        mode = detect_fake_mode([node.meta.get("val") for node in stages.captured.gm.graph.nodes])
        guards = [] if mode is None or mode.shape_env is None else mode.shape_env.guards
        before = len(guards)
        lowered = stages.lower(forced)
        if len(guards) > before:
            raise NotCompiled("lowering it again needs guards that Dynamo has not read")
        self.lowered = lowered

    def run(self, stages: Stages, progress: Progress, forced: frozenset[str], finish: Finish) -> Compiled:
        """Compile and load a graph; raise ``LitzError``."""
        if self.behind and self.lowered is None:
            raise LoweringNeeded(partial(self.lower_again, stages, forced))
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
