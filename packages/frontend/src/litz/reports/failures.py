"""Failure policy: a failure is reported here, and either raises or costs speed alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import torch
from torch.fx import GraphModule

from litz.notices import log_once
from litz.settings import Config
from litz_ir.errors import (
    CompilerNotFound,
    ConfigError,
    InternalError,
    LitzError,
    NotCompiled,
    UserPassError,
)
from litz_ir.loops import LoopGraph
from litz_ir.target import FailureCallback

log = logging.getLogger("litz")

T = TypeVar("T")

_REPRO = "litz.reports.repro"
"""Module that writes reports; imported after the first failure."""

_AFTER_AOT = "litz.reports.after_aot"
"""Module that writes scripts for ``TORCHDYNAMO_REPRO_AFTER``; imported where that asks for them."""


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A graph as litz received it, from Dynamo or from AOTAutograd."""

    gm: GraphModule
    """The graph itself."""

    name: str
    """Name of the graph in warnings and reports."""

    captured: bool = False
    """True for a graph that Dynamo captured; False for one of AOTAutograd's."""

    frozen: frozenset[str] = frozenset()
    """Names of placeholders assumed equal from call to call, as :func:`litz_lowering.lower` takes them."""

    donated: frozenset[str] = frozenset()
    """Names of placeholders whose memory the graph may reuse."""

    saved: frozenset[str] = frozenset()
    """Names of nodes whose results the backward alone reads."""


@dataclass(frozen=True, slots=True)
class Failures:
    """The failure policy of one call of the backend, and the failures that were reported."""

    config: Config
    """Options of the call, of which ``fallback`` decides."""

    source: GraphSource | None = None
    """The graph being compiled, for the repro in a report; ``None`` where it is unknown."""

    reported: set[str] = field(default_factory=set)
    """Texts of the failures reported so far, each reported once."""

    def of(self, source: GraphSource) -> Failures:
        """Return the policy for one graph, with the same record of reported failures."""
        return replace(self, source=source)

    def attempt(self, stage: str, work: Callable[[], T], otherwise: T, instead: str) -> T:
        """Return the result of ``work``; where it raises, report that with its consequence ``instead`` and return
        ``otherwise``."""
        try:
            return work()
        except Exception as error:
            self.report(error, stage, instead)
            return otherwise

    def callback(self, stage: str) -> FailureCallback:
        """Return :meth:`report` as a function of the error and its consequence."""

        def report(error: Exception, instead: str) -> None:
            self.report(error, stage, instead)

        return report

    def report(
        self,
        error: Exception,
        stage: str,
        instead: str,
        loops: LoopGraph | None = None,
        nodes: frozenset[str] = frozenset(),
    ) -> None:
        """Raise the error as a ``LitzError`` where ``config.fallback`` is ``error``; else warn of it once, unless
        ``silent``.

        A ``ConfigError`` and a ``UserPassError`` are always raised. ``instead`` completes the sentence "lowering
        failed, so ...". ``loops`` is the lowered graph, where there is one, for the repro. ``nodes`` are the nodes of
        the graph that cause the failure, where that is known.
        """
        if torch._dynamo.config.repro_after == "aot" and not isinstance(error, ConfigError | NotCompiled):
            self._write_scripts(error)
        if isinstance(error, LitzError):
            if isinstance(error, ConfigError | UserPassError) or self.config.fallback == "error":
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
                lines += self._source_lines(self.source.gm, nodes)
            log.warning(
                "%s", "\n".join([*lines, f"  report: {self._report_folder(found, error, text, loops)}"])
            )

    def _write_scripts(self, error: Exception) -> None:
        """Write the scripts that ``TORCHDYNAMO_REPRO_AFTER=aot`` asks for; a failure of that is logged."""
        if self.source is None or self.source.captured:
            return
        try:
            import_module(_AFTER_AOT).write_scripts(self.config, self.source, error, str(error))
        except Exception as problem:  # the failure itself is worth more than its scripts
            log.warning("litz: no minifier script: %s: %s", type(problem).__name__, problem)

    def _source_lines(self, gm: GraphModule, nodes: frozenset[str]) -> list[str]:
        """Return lines of the warning that name the user's source lines, or the reason that they are unknown."""
        try:
            return [f"  from: {line}" for line in import_module(_REPRO).source_lines(gm, nodes)]
        except Exception as problem:  # the warning is worth more than these lines
            return [f"  from: unknown, since the search failed: {type(problem).__name__}: {problem}"]

    def _report_folder(
        self, found: LitzError, error: Exception, text: str, loops: LoopGraph | None
    ) -> Path | str:
        """Return the folder of the failure's report, or the reason that there is none."""
        if self.source is None:
            return "none, since the graph is unknown"
        raised = error if found.__cause__ is None else found
        try:
            folder: Path = import_module(_REPRO).write_report(self.config, self.source, raised, text, loops)
            return folder
        except Exception as problem:  # a failure to write the report costs the report alone
            return f"none, since writing it failed: {type(problem).__name__}: {problem}"
