"""Minimisation of a failing graph: the smallest graph found that fails in the same way, as a folder of its own."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from litz.configuration import config
from litz.debugging.judging_process import JudgingProcess
from litz.debugging.replay import REPLAY, Replay, propagate
from litz.debugging.shrink import REDUCTIONS, cleaned, duplicate, operations
from litz.debugging.verdict import Check
from litz.debugging.worker import load_graph
from litz.reports.fx_source import graph_source
from litz.reports.repro import changed_options, machine
from litz_ir.errors import ConfigError, NothingFails

Judge = Callable[[GraphModule, Sequence[Any]], bool]
"""Function of a graph and its inputs that reports whether it fails."""

_HERE = ("cache", "cache_dir")
"""Options that the process which tries graphs shares with this one, and which the result leaves open."""


@dataclass(frozen=True, slots=True)
class Minified:
    """A graph that fails as a larger one did."""

    folder: Path
    """Folder with ``graph.py``, ``replay.json`` and ``repro.py``, which runs alone."""

    failure: str
    """Kind of the failure: ``wrong``, ``TooSlow``, the exception's class and stage, the end of the process,
    ``timeout``, or ``check`` where a function judged."""

    before: int
    """Number of operations of the given graph."""

    after: int
    """Number of operations of the smallest graph found."""

    steps: int
    """Number of graphs that were tried."""

    def __str__(self) -> str:
        return (
            f"{self.after} of {self.before} operations fail in the same way ({self.failure}), after {self.steps} "
            f"steps: {self.folder / 'repro.py'}"
        )


def minify(
    source: str | Path | GraphModule,
    inputs: Sequence[Any] | None = None,
    *,
    check: Check | Judge = "crash",
    into: str | Path | None = None,
    modules: Sequence[str] = (),
    ratio: float = 1.5,
    seconds: float = 300.0,
    timeout: float = 60.0,
) -> Minified:
    """Shrink a failing graph while it fails in the same way, and write the result to a folder.

    ``source`` is a report folder (`docs/failures.md`), or a graph with its ``inputs``. ``check`` is ``crash`` (the same
    class of exception in the same stage, or the same end of the process), ``wrong`` (values outside the bound of the
    self-check), ``slow`` (calls take more than ``ratio`` times as long as in eager), or a function of a graph and its
    inputs, which runs in this process. Elements of inputs are random, from a fixed seed.

    Outputs and operations are removed, operations become inputs, and sizes and dtypes become smaller and plainer, for
    at most ``seconds`` seconds. Graphs are tried in another process, which imports ``modules`` first (those that
    register operators), has ``timeout`` seconds for each graph, and is started again where it ends. ``into`` is a new
    folder; by default a temporary one.

    Raises :class:`~litz_ir.errors.NothingFails` where the graph by itself does not fail, and
    :class:`~litz_ir.errors.ConfigError` for a wrong source.
    """
    if wrong := [name for name in modules if not all(map(str.isidentifier, name.split(".")))]:
        raise ConfigError(
            f"{wrong[0]!r} is no name of a module", hint="give dotted names, as import takes them"
        )
    gm, replay = _given(source, inputs)
    with tempfile.TemporaryDirectory(prefix="litz-minify-") as workspace:
        process = JudgingProcess(modules, timeout)
        search = _Search(replay, check, ratio, process, Path(workspace), time.monotonic() + seconds)
        try:
            smallest = search.run(gm)
        finally:
            process.close()
        folder = _folder(into)
        before, after = len(operations(gm)), len(operations(smallest))
        _write(folder, smallest, before, search, modules)
    return Minified(folder, search.failure, before, after, search.steps)


def _given(source: str | Path | GraphModule, inputs: Sequence[Any] | None) -> tuple[GraphModule, Replay]:
    """Return the graph with metadata, and the way in which it is compiled."""
    if isinstance(source, GraphModule):
        if inputs is None:
            raise ConfigError("a graph is given without its inputs", hint="minify(graph, inputs)")
        gm, replay, given = duplicate(source), Replay(), list(inputs)
    else:
        folder = Path(source)
        if not (folder / "graph.py").exists() or not (folder / REPLAY).exists():
            raise ConfigError(
                f"{folder} is no folder of a report with a graph",
                hint="it has graph.py and replay.json, unless the graph cannot be written as code",
            )
        gm, given = load_graph(folder / "graph.py")
        replay = Replay.read(folder)
    propagate(gm, given)
    current = config.current()
    options = {**changed_options(current), **{name: getattr(current, name) for name in _HERE}}
    return gm, replace(replay, options={**options, **replay.options}, calls=1)


@dataclass(slots=True)
class _Search:
    """The search for a small graph."""

    replay: Replay
    """The way in which graphs are compiled."""

    check: Check | Judge
    """Kind of failure."""

    ratio: float
    """Multiple of eager's time above which a call is slow."""

    process: JudgingProcess
    """Process that tries graphs."""

    workspace: Path
    """Folder of the graphs that are tried."""

    deadline: float
    """Time at which the search ends, by the monotonic clock."""

    failure: str = ""
    """Kind of the failure of the whole graph."""

    steps: int = 0
    """Number of graphs tried."""

    seen: set[str] = field(default_factory=set)
    """Digests of the graphs tried."""

    def run(self, gm: GraphModule) -> GraphModule:
        """Return the smallest graph found."""
        self.failure = self._failure(gm)
        if not self.failure:
            raise NothingFails(
                "the graph by itself does not fail",
                hint="the failure may depend on the elements of inputs, or on what ran before: see litz.bisect",
            )
        while True:
            before = graph_source(gm)
            for reduction in REDUCTIONS:
                gm = reduction(gm, self._attempt)
            if graph_source(gm) == before or time.monotonic() > self.deadline:
                return gm

    def _attempt(self, candidate: GraphModule) -> GraphModule | None:
        """Return a candidate where it fails as the whole graph does."""
        if time.monotonic() > self.deadline:
            return None
        try:
            return candidate if self._failure(cleaned(candidate)) == self.failure else None
        except (RuntimeError, TypeError, AssertionError):
            return None  # a graph that is malformed, or has no spelling

    def _failure(self, gm: GraphModule) -> str:
        """Return the kind of failure of a graph, written out and read again; empty for one that was tried before."""
        text = graph_source(gm)
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest in self.seen:
            return ""
        self.seen.add(digest)
        self.steps += 1
        path = self.workspace / "graph.py"
        path.write_text(text, encoding="utf-8")
        if callable(self.check):
            return "check" if self.check(*load_graph(path)) else ""
        return self.process.failure(path, self.named(gm), self.check, self.ratio)

    def named(self, gm: GraphModule) -> Replay:
        """Return the replay without names of nodes that a graph does not have."""
        names = {node.name for node in gm.graph.nodes}
        named = (self.replay.frozen, self.replay.donated, self.replay.saved)
        frozen, donated, saved = ([name for name in own if name in names] for own in named)
        return replace(self.replay, frozen=frozen, donated=donated, saved=saved)


def _folder(into: str | Path | None) -> Path:
    """Return the folder of the result, which is new."""
    if into is None:
        return Path(tempfile.mkdtemp(prefix="litz-minified-"))
    folder = Path(into)
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise ConfigError(f"{folder} exists", hint="name a new folder") from error
    return folder


def _write(folder: Path, gm: GraphModule, before: int, search: _Search, modules: Sequence[str]) -> None:
    """Write the files of the result."""
    replay = search.named(gm)
    portable = {name: value for name, value in replay.options.items() if name not in _HERE}
    (folder / "graph.py").write_text(graph_source(gm), encoding="utf-8")
    (folder / REPLAY).write_text(replace(replay, options=portable).to_json(), encoding="utf-8")
    if callable(search.check):
        repeat = 'Replay.read(FOLDER).run(*load_graph(FOLDER / "graph.py"))  # a function judged this graph'
    else:
        given = f"check={search.check!r}, ratio={search.ratio!r}"
        repeat = f'run(*load_graph(FOLDER / "graph.py"), Replay.read(FOLDER), {given})'
    script = _SCRIPT.format(
        failure=search.failure,
        after=len(operations(gm)),
        before=before,
        machine=machine(),
        imports="".join(f"import {name}\n" for name in modules),
        repeat=repeat,
    )
    (folder / "repro.py").write_text(script, encoding="utf-8")


_SCRIPT = '''"""Repeat a failure: python repro.py

The graph of graph.py fails when it is compiled as replay.json says: {failure}. It has {after} of {before} operations.
Found with {machine}.
"""

from pathlib import Path

{imports}from litz.debugging.replay import Replay
from litz.debugging.verdict import run
from litz.debugging.worker import load_graph

FOLDER = Path(__file__).parent
{repeat}
print("no failure")
'''
