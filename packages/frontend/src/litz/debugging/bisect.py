"""Bisection of a failing program: the first transformation with which it fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from litz.configuration import config
from litz.debugging.comparison import Program, eager
from litz.debugging.culprit import NOTHING, Blamed, Culprit, Stage, changed_by_pass, computed_by, kernels_of
from litz.debugging.probe import Check, Experiment, Outcome, ProbedGraph, Prober
from litz.passes import pass_name
from litz.self_check.bisection import faulty_nodes, regions
from litz.settings import Config
from litz_ir.errors import NothingFails
from litz_ir.origin import describe_locations
from litz_ir.passes import FUEL_KINDS, FuelKind
from litz_ir.plan import Plan
from litz_lowering import origin_of

_PASSES = ("fx-pass", "graph-pass")
"""Kinds of transformations whose input and output are graphs that are compared by operation."""


def bisect(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backward: bool = False,
    check: Check | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> Culprit:
    """Find the transformation of litz that makes a program fail: a pass, a fusion, the sharing of memory or a kernel.

    The program is a call of ``fn`` with ``args`` and ``kwargs`` and, with ``backward``, the gradients of its results'
    sum. It fails where an exception is raised that eager does not raise, or where results, inputs after the call,
    gradients or buffers differ from eager's by more than ``torch.testing.assert_close`` allows with the tolerances
    ``rtol`` and ``atol``. ``check`` judges otherwise: it gets the compiled function, and returns whether that works.

    The program is compiled some tens of times with the options in force, without the cache of graphs: with some of its
    graphs as ATen operations, then one graph with ever more transformations. Each run begins with copies of function
    and arguments and with the same random state. Raises :class:`~litz_ir.errors.NothingFails` for a program that works.
    """
    program = Program(fn, args, kwargs or {}, backward)
    expected = program.run(eager) if check is None else ()
    prober, baseline = _failing(Prober(program, _quiet(config.current()), check, expected, rtol, atol))
    return _Search(prober, baseline).run()


def _quiet(chosen: Config) -> Config:
    """Return options with which a compilation depends on the program alone, and a failing graph runs as ATen."""
    return replace(
        chosen,
        fallback="silent",
        autotune=False,
        cuda_graphs=False,
        self_check="off",
        debug_files=False,
    )


def _failing(prober: Prober) -> tuple[Prober, Outcome]:
    """Return the prober with options under which the program fails, and that failure.

    A failure of the compiler itself does not show in results, since ATen takes over, unless the options say so.
    """
    for fallback in ("silent", "error"):
        found = replace(prober, config=prober.config.replaced({"fallback": fallback}))
        outcome = found.run(Experiment())
        if outcome.failure:
            return found, outcome
    raise NothingFails(
        "the program works: nothing to bisect",
        hint="give the arguments with which it fails, and options by litz.config",
    )


@dataclass(slots=True)
class _Search:
    """The search for the culprit of one program."""

    prober: Prober
    """Runs the program."""

    baseline: Outcome
    """The failure of the whole program."""

    probes: int = 1
    """Number of probes so far."""

    def run(self) -> Culprit:
        """Return the culprit."""
        users = self.prober.passes
        if users and not self._fails(Experiment(users=0)):
            _, number = self._first(len(users), lambda n: Experiment(users=n))
            stage, item = users[number - 1]
            return self._culprit("user-pass", f"{pass_name(item)} of the stage {stage}", "", NOTHING)
        if self._probe(Experiment(graphs=0)).failure == self.baseline.failure:
            return self._culprit("capture", "", "", NOTHING)
        _, number = self._first(len(self.baseline.graphs), lambda n: Experiment(graphs=n))
        limits = dict.fromkeys(FUEL_KINDS, 0)
        if self._fails(Experiment(number, limits)):
            return self._kernel(Experiment(number, limits))
        for kind in FUEL_KINDS:
            limits = {each: limit for each, limit in limits.items() if each != kind}
            if self._fails(Experiment(number, limits)):
                return self._transformation(Experiment(number, limits), kind)
        raise _erratic()  # without limits the same graph failed above

    def _transformation(self, failing: Experiment, kind: FuelKind) -> Culprit:
        """Return the first transformation of a kind with which a graph fails, given an experiment without a limit for
        the kind."""

        def limited(count: int) -> Experiment:
            return replace(failing, limits={**failing.limits, kind: count})

        made = self._probe(failing).graphs[-1].fuel.spent.get(kind)
        if not made:
            raise _erratic()  # with none of them the graph worked
        before, count = self._first(len(made), limited)
        names = made[before:count]
        graph = self._probe(replace(limited(count), watched=names[-1])).graphs[-1]
        if kind in _PASSES:
            blamed = changed_by_pass(*graph.passed)
        else:
            # A graph that fails to compile is planned without the transformation.
            plans = (_plan(each) for each in (graph, self._probe(limited(before)).graphs[-1]))
            planned = next(filter(None, plans), None)
            operations = [part for each in names for part in each.split(" + group of ")]
            blamed = NOTHING if planned is None else computed_by(planned, operations)
        return self._culprit(kind, ", ".join(names), graph.name, blamed)

    def _kernel(self, failing: Experiment) -> Culprit:
        """Return the kernels that fail in a graph without any transformation."""
        graph = self._probe(failing).graphs[-1]
        plan, nodes = _plan(graph), list(graph.gm.graph.nodes)
        ends = frozenset(node.name for node in nodes if node.op in ("placeholder", "output"))
        groups = (
            [frozenset({node.name}) for node in nodes if node.op == "call_function"]
            if plan is None
            else regions(plan, ends)
        )
        found = faulty_nodes(groups, lambda forced: self._fails(replace(failing, forced=forced)))
        if not found:
            return self._culprit("host", graph.name, graph.name, NOTHING)
        if plan is None:
            lines = describe_locations(origin_of(node) for node in nodes if node.name in found)
            names = tuple(sorted(found))
            return self._culprit("kernel", ", ".join(names), graph.name, (names, lines))
        kernels, blamed = kernels_of(plan, found)
        return self._culprit("kernel", ", ".join(kernels), graph.name, blamed)

    def _first(self, total: int, experiment: Callable[[int], Experiment]) -> tuple[int, int]:
        """Return the largest count that works and the next one, which fails, given that none of them works and all
        ``total`` fail.

        Counts between the two fail in another way, or do not compile.
        """
        right, wrong, unresolved = 0, total, set[int]()
        while rest := [n for n in range(right + 1, wrong) if n not in unresolved]:
            middle = rest[len(rest) // 2]
            outcome = self._probe(experiment(middle))
            if outcome.failure == self.baseline.failure:
                wrong = middle
            elif not outcome.failure and outcome.compiles:
                right = middle
            else:
                unresolved.add(middle)
        return right, wrong

    def _fails(self, experiment: Experiment) -> bool:
        """Report whether the program fails as it does without limits."""
        return self._probe(experiment).failure == self.baseline.failure

    def _probe(self, experiment: Experiment) -> Outcome:
        """Run an experiment."""
        self.probes += 1
        return self.prober.run(experiment)

    def _culprit(self, stage: Stage, name: str, graph: str, blamed: Blamed) -> Culprit:
        """Return the result."""
        return Culprit(stage, name, graph, *blamed, self.baseline.text, self.probes)


def _erratic() -> NothingFails:
    """Return the error of a program whose failure does not repeat."""
    return NothingFails(
        "the program fails in some runs alone",
        hint="remove what differs from run to run, such as the time or random numbers of other libraries",
    )


def _plan(graph: ProbedGraph) -> Plan | None:
    """Return the plan of a graph; ``None`` where it did not compile."""
    compiled = graph.compiled
    return None if compiled is None or compiled.artifact is None else compiled.artifact.plan
