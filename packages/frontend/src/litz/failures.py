"""The one place where a failure is told, and where it is decided whether it raises or costs speed alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from torch.fx import GraphModule

from litz.notices import log_once
from litz.settings import Config
from litz_ir.errors import CompilerNotFound, ConfigError, InternalError, LitzError, NotCompiled
from litz_ir.loops import LoopGraph
from litz_ir.target import FailureCallback

log = logging.getLogger("litz")

T = TypeVar("T")

REPRO = "litz.repro"
"""The module that writes reports, which nobody loads before something fails."""


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A graph as litz was given it: by Dynamo, where it is ``captured``, else by AOTAutograd, with the names of its
    nodes that :func:`litz_lowering.lower` takes."""

    gm: GraphModule
    name: str
    captured: bool = False
    frozen: frozenset[str] = frozenset()
    donated: frozenset[str] = frozenset()
    saved: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Failures:
    """Policy and memory of the failures of one call of the backend: ``reported`` is what was reported.

    ``source`` is the graph at hand, of which a report keeps a repro.
    """

    config: Config
    source: GraphSource | None = None
    reported: set[str] = field(default_factory=set)

    def of(self, source: GraphSource) -> Failures:
        """The same for one of the graphs."""
        return replace(self, source=source)

    def attempt(self, stage: str, work: Callable[[], T], otherwise: T, instead: str) -> T:
        """What ``work`` gives; where it fails, ``otherwise``, reported with what happens ``instead``."""
        try:
            return work()
        except Exception as error:
            self.report(error, stage, instead)
            return otherwise

    def callback(self, stage: str) -> FailureCallback:
        """What :meth:`report` is to those who are to know no more of it."""

        def told(error: Exception, instead: str) -> None:
            self.report(error, stage, instead)

        return told

    def report(
        self,
        error: Exception,
        stage: str,
        instead: str,
        loops: LoopGraph | None = None,
        nodes: frozenset[str] = frozenset(),
    ) -> None:
        """Raise the error where ``config.fallback`` is ``error``, as a ``LitzError``; else warn of it, once, unless
        that is ``silent``. Wrong options always raise.

        ``instead`` completes the sentence "lowering failed, so ...". ``loops`` is the lowered graph, where there is
        one, which joins the repro; ``nodes`` are those of the graph that are to blame, where that is known.
        """
        if isinstance(error, LitzError):
            if isinstance(error, ConfigError) or self.config.fallback == "error":
                raise error
            found: LitzError = error
        else:
            found = InternalError.of(error, stage)
            if self.config.fallback == "error":
                raise found from error
        text = str(found)
        if self.config.fallback == "silent" or text in self.reported:
            return
        self.reported.add(text)
        if isinstance(found, NotCompiled):
            log_once(f"litz: a graph runs as ATen operations: {found.message}")
        elif isinstance(found, CompilerNotFound):
            log_once(f"litz: there is no compiler, so graphs run as ATen operations.\n{text}")
        else:
            lines = [f"litz: {found.stage} failed, so {instead}.", text]
            if not found.origin and self.source is not None:
                lines += self._places(self.source.gm, nodes)
            log.warning("%s", "\n".join([*lines, f"  report: {self._kept(found, error, text, loops)}"]))

    def _places(self, gm: GraphModule, nodes: frozenset[str]) -> list[str]:
        """Lines of the warning that say where the graph comes from, or why that is not told."""
        try:
            return [f"  from: {place}" for place in import_module(REPRO).source_lines(gm, nodes)]
        except Exception as problem:  # the warning is worth more than its lines
            return [f"  from: not told, for looking failed: {type(problem).__name__}: {problem}"]

    def _kept(self, found: LitzError, error: Exception, text: str, loops: LoopGraph | None) -> Path | str:
        """The folder of the failure's report, or why there is none."""
        if self.source is None:
            return "none, for want of the graph"
        shown = error if found.__cause__ is None else found
        try:
            folder: Path = import_module(REPRO).write_report(self.config, self.source, shown, text, loops)
            return folder
        except Exception as problem:  # whatever stands in its way costs the report alone
            return f"none, for writing it failed: {type(problem).__name__}: {problem}"
