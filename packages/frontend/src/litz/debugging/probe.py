"""Probes: runs of a program with some of its graphs compiled, and one of them with few transformations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch.fx import GraphModule

from litz.cache.artifacts import ArtifactCache
from litz.capture.aot import CompileSession
from litz.capture.compile_fx import compile_in_session
from litz.debug import Instruments
from litz.debugging.comparison import Program, compare
from litz.explain.captures import without_recompile_limit
from litz.loading import Compiled
from litz.passes import Passes
from litz.settings import Config
from litz_ir.errors import InternalError, LitzError
from litz_ir.passes import Fuel, FuelKind

Check = Callable[[Callable[..., Any]], bool]
"""Function that takes the compiled function and reports whether it works; an exception says that it does not."""

EVERY = 1 << 30
"""Number of graphs, or of passes, that stands for all of them."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """The part of a compilation that a probe makes."""

    graphs: int = EVERY
    """Number of graphs that litz compiles; later ones run as ATen operations."""

    limits: Mapping[FuelKind, int] = field(default_factory=dict)
    """Fuel of the last of these graphs."""

    forced: frozenset[str] = frozenset()
    """Nodes of that graph that run as ATen operations."""

    watched: str = ""
    """Name of a pass of that graph whose input and output are returned; empty for none."""

    users: int = EVERY
    """Number of users' passes that run, in the order of :meth:`litz.passes.Passes.by_stage`."""


@dataclass(slots=True)
class ProbedGraph:
    """A graph that litz compiled in a probe."""

    name: str
    """Its kind, and its number."""

    gm: GraphModule
    """The ATen graph."""

    fuel: Fuel
    """The transformations that were made."""

    compiled: Compiled | None = None
    """The compiled graph; ``None`` where the compilation failed."""

    passed: tuple[object, object] = (None, None)
    """Input and output of the watched pass, the last time that it changed something."""


@dataclass(slots=True)
class Outcome:
    """Result of a probe."""

    failure: str = ""
    """Kind of the failure: ``wrong``, or the exception's class and stage; empty where the program works."""

    text: str = ""
    """The failure as text."""

    graphs: list[ProbedGraph] = field(default_factory=list)
    """The graphs that litz compiled, in order."""

    @property
    def compiles(self) -> bool:
        """False where a graph does not compile, so that the outcome says nothing about its kernels."""
        return all(each.compiled is not None and each.compiled.artifact for each in self.graphs)


@dataclass(frozen=True, slots=True)
class Prober:
    """Runs a program under experiments."""

    program: Program
    """The program."""

    config: Config
    """Options of the compilations."""

    check: Check | None = None
    """Function that judges the compiled function; ``None`` to compare its call with eager's."""

    expected: Sequence[tuple[str, Any]] = ()
    """Values after the call in eager, by name."""

    rtol: float | None = None
    """Relative tolerance; ``None`` for that of ``torch.testing.assert_close``."""

    atol: float | None = None
    """Absolute tolerance, likewise."""

    @property
    def passes(self) -> Sequence[tuple[str, Any]]:
        """Users' passes in force, each with its stage, in the order in which they run."""
        return tuple(ArtifactCache.open(self.config).passes.by_stage())

    def run(self, experiment: Experiment) -> Outcome:
        """Compile and run the program in a part, and return what that showed."""
        outcome = Outcome()
        backend = _Backend(self.config, experiment, outcome)
        with without_recompile_limit():
            try:
                self._judge(backend)
            except Exception as error:
                inner = error.inner_exception if isinstance(error, BackendCompilerFailed) else error
                outcome.failure, outcome.text = failure_of(inner), f"{type(inner).__name__}: {inner}"
        return outcome

    def _judge(self, backend: Callable[..., Callable[..., Any]]) -> None:
        """Raise an exception where the program fails."""
        if self.check is not None:
            check = self.check
            self.program.run(lambda own: _checked(check, torch.compile(own, backend=backend)))
        else:
            found = self.program.run(lambda own: torch.compile(own, backend=backend))
            compare(self.expected, found, self.rtol, self.atol)


def _checked(check: Check, compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises ``AssertionError`` where a check finds that a compiled function does not work."""

    def call(*args: Any, **kwargs: Any) -> None:
        if not check(compiled):
            raise AssertionError("the check failed")

    return call


def _first(passes: Passes, count: int) -> Passes:
    """Return the first passes, in the order in which they run."""
    kept = list(itertools.islice(passes.by_stage(), count))
    return Passes(**{stage: tuple(item for own, item in kept if own == stage) for stage in dict(kept)})


def failure_of(error: BaseException) -> str:
    """Return the kind of a failure: the class of the exception, and the stage of litz that raised it."""
    if isinstance(error, AssertionError) and not isinstance(error, LitzError):
        return "wrong"
    if isinstance(error, InternalError) and error.__cause__ is not None:
        return f"{type(error.__cause__).__name__} in {error.stage}"
    return (
        f"{type(error).__name__} in {error.stage}" if isinstance(error, LitzError) else type(error).__name__
    )


class _Backend:
    """Backend of one probe."""

    def __init__(self, config: Config, experiment: Experiment, outcome: Outcome) -> None:
        self._config = config
        self._experiment = experiment
        self._outcome = outcome
        self._cache = ArtifactCache.open(config).without_graphs()
        self._cache.passes = _first(self._cache.passes, experiment.users)

    def __call__(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        session = CompileSession(self._config, self._cache, (self._observe,), instrument=self._instruments)
        return compile_in_session(gm, inputs, session)

    def _instruments(self, gm: GraphModule, kind: str) -> Instruments:
        """Return the instruments of the next graph."""
        experiment, number = self._experiment, len(self._outcome.graphs)
        if number >= experiment.graphs:
            return Instruments(whole=True)
        last = number == experiment.graphs - 1
        graph = ProbedGraph(f"{kind} {number}", gm, Fuel(experiment.limits if last else {}))
        self._outcome.graphs.append(graph)

        def watch(name: str, before: object, after: object) -> None:
            if name == experiment.watched and before is not after:
                graph.passed = before, after

        hooks = (watch,) if last and experiment.watched else ()
        forced = experiment.forced if last else frozenset()
        return Instruments(hooks, graph.fuel, forced=forced)

    def _observe(self, compiled: Compiled) -> None:
        """Note the compiled form of a graph."""
        waiting = [each for each in self._outcome.graphs if each.compiled is None]
        if waiting and len(self._outcome.graphs) <= self._experiment.graphs:
            waiting[-1].compiled = waiting[-1].compiled or compiled
