"""Recorder of one call of the backend: it collects the forms of each graph, and gives them to the sinks that are on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from torch._logging._internal import trace_log
from torch.fx import GraphModule

from litz.debug import Instruments
from litz.loading import Compiled
from litz.notices import FORMS, is_shown, log_artifact
from litz.reports.failures import Failures, GraphSource
from litz.settings import Config
from litz.trace.folder import write_graph, write_pages
from litz.trace.pages import (
    Page,
    PassResult,
    compiled_pages,
    form_text,
    graph_pages,
    logged_forms,
    pass_pages,
)
from litz.trace.structured import emit, emit_times
from litz_ir.passes import Timings


@dataclass(slots=True)
class GraphRecord:
    """The forms of one AOT graph so far."""

    source: GraphSource
    """The graph, and its name."""

    results: list[PassResult] = field(default_factory=list)
    """Results of passes, in order."""

    timings: Timings = field(default_factory=Timings)
    """Seconds of each pass."""

    def watch(self, name: str, before: object, after: object) -> None:
        """Note the result of a pass."""
        if before is not after:
            self.results.append(PassResult(name, before, after))


@dataclass(slots=True)
class Recorder:
    """The sinks of one call of the backend: debug files where the options say so, and torch's structured trace."""

    config: Config
    """Options of the call."""

    failures: Failures
    """Failure policy: a page that cannot be made costs that page alone."""

    before: dict[str, GraphModule] = field(default_factory=dict)
    """Graphs before those that are compiled, by name: that of Dynamo, and the joint one."""

    def instruments(self, source: GraphSource) -> tuple[Instruments, GraphRecord]:
        """Return the instruments of a graph that is to be compiled, and its record; write what is known so far.

        A graph of debug files is compiled although it is in the cache.
        """
        record = GraphRecord(source)
        pages = partial(self._first_pages, source)
        if self.config.debug_files:
            self._attempt(lambda: write_graph(source, self.config, pages()))
        if trace_log.handlers:
            self._attempt(lambda: emit(source.name, pages()))
        return Instruments((record.watch,), timings=record.timings, anew=self.config.debug_files), record

    def compiled(self, name: str, compiled: Compiled, record: GraphRecord | None = None) -> None:
        """Give the pages of a compiled graph, or of one found in the cache, to the sinks."""

        def pages() -> Iterable[Page]:
            if record is not None:
                yield from pass_pages(record.results)
            yield from compiled_pages(compiled, {} if record is None else record.timings.seconds)

        if record is not None and any(map(is_shown, FORMS)):
            self._attempt(lambda: self._log_forms(name, compiled, record))
        if self.config.debug_files:
            self._attempt(lambda: write_pages(name, pages()))
        if trace_log.handlers:
            self._attempt(lambda: emit(name, pages()))
            if compiled.artifact is not None and not compiled.artifact.cached:
                seconds = compiled.artifact.seconds
                self._attempt(lambda: emit_times(name, seconds))

    def _log_forms(self, name: str, compiled: Compiled, record: GraphRecord) -> None:
        """Log the forms of a graph that torch's artifacts ask for, unless it was found in the cache."""
        if compiled.artifact is not None and compiled.artifact.cached:
            return
        for artifact, form in logged_forms(
            record.source.gm, record.results, self.before.get("captured")
        ).items():
            log_artifact(artifact, name, partial(_text_alone, form))

    def _first_pages(self, source: GraphSource) -> Iterable[Page]:
        """Yield the graphs before the one that is compiled, then this one."""
        graphs: Mapping[str, GraphModule] = {**self.before, "graph": source.gm}
        for stem, gm in graphs.items():
            yield from graph_pages(stem, gm)

    def _attempt(self, work: Callable[[], object]) -> None:
        """Do some work whose failure is reported and has no other consequence."""
        self.failures.attempt("trace", work, None, "pages of a trace are missing")


def _text_alone(form: object) -> Iterable[str]:
    """Yield the text of a form."""
    yield form_text(form)
