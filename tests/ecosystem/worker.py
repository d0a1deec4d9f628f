"""Process of one case: runs a program in every way, and reports to its parent."""

from __future__ import annotations

import functools
import importlib
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from unittest import mock

import torch
from opinfo.watching import Made, heard_warnings
from torch._dynamo.utils import clear_compilation_metrics, counters, get_compilation_metrics
from zoo.judge import Leaves, difference

import litz
from ecosystem.catalogue import BY_NAME, Case
from ecosystem.compiled_wheels import import_compiled_wheels
from ecosystem.execution import prepared, reference, results, rounded_otherwise, said, seconds_of_call
from ecosystem.programs import MARK, Backend, Prepare
from ecosystem.row import ELSEWHERE, LITZ, PASSED, PEER, PLAIN, Outcome
from litz.capture.counters import count_graph
from litz.explain.graph_breaks import GraphBreaks
from litz.loading import Compiled

OTHER_ROUNDINGS = 3


def main(
    connection: Connection, case: Case, log: str, cache: str, *, peer: bool = False, timed: bool = False
) -> None:
    """Send the messages of :meth:`ecosystem.row.Row.receive`; with `peer` Inductor's outcome too, with `timed` the
    times of calls."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    torch.set_num_threads(1)
    with warnings.catch_warnings(), litz.config.patch(cache_dir=cache, fallback="warn"):
        warnings.simplefilter("ignore")
        try:
            import_compiled_wheels()
            prepare, steps = load(case)
            step = prepared(prepare, Backend())
            expected = results(step, steps)
            call = seconds_of_call(step) if timed else 0.0
        except Exception as error:
            return connection.send(("eager", said(error)))
        exact, single = reference(prepare, steps, expected)
        connection.send(("reference", BY_NAME[case.library].version(), single, call))
        outcomes: dict[str, Outcome] = {}
        for backend in (PLAIN, LITZ, PEER) if peer else (PLAIN, LITZ):
            connection.send(("running", backend))
            outcomes[backend] = judged(prepare, steps, backend, expected, exact, timed=timed)
            if backend == LITZ:
                outcomes[LITZ] = compared_with_plain(outcomes[LITZ], outcomes[PLAIN])
            connection.send((backend, outcomes[backend]))


def load(case: Case) -> tuple[Prepare, range]:
    """Import a program with its library, and return it with the numbers of its steps."""
    module = importlib.import_module(f"ecosystem.libraries.{BY_NAME[case.library].path.stem}")
    prepare: Prepare = getattr(module, case.name)
    return prepare, range(getattr(prepare, MARK))


def compared_with_plain(outcome: Outcome, plain: Outcome) -> Outcome:
    """Return litz's outcome, which is not its fault where torch's own operators fail in the same way."""
    if outcome.verdict == PASSED or outcome.verdict != plain.verdict:
        return outcome
    return replace(outcome, verdict=ELSEWHERE, reason=f"{outcome.reason}; aot_eager: {plain.reason}")


def judged(
    prepare: Prepare, steps: range, backend: str, expected: Leaves, exact: Leaves, *, timed: bool = False
) -> Outcome:
    """Run a program compiled by a backend and compare it with eager."""
    torch._dynamo.reset()
    clear_compilation_metrics()  # the list has a largest length
    before, breaks = Counter(counters["stats"]), GraphBreaks()
    verdict, reason, first, call = PASSED, "", 0.0, 0.0
    with observed_graphs() as made:
        try:
            step = prepared(prepare, Backend(backend))
            start = time.perf_counter()
            actual = dict(results(step, steps[:1]))
            first = time.perf_counter() - start
            actual |= results(step, steps[1:])
        except Exception as error:
            verdict, reason = "raises", said(error)
    recompiles = sum(bool(metrics.recompile_reason) for metrics in get_compilation_metrics())
    graphs = Counter(counters["stats"])["unique_graphs"] - before["unique_graphs"]
    number = sum(each.count for each in breaks.found())
    if verdict == PASSED:
        further = functools.partial(other_roundings, prepare, steps)
        wrong = difference(actual, expected, exact, further)
        failure = made.fell_back()
        if wrong is not None:
            verdict, reason = "wrong", wrong
        elif failure is not None:
            verdict, reason = "fell back", failure
        call = seconds_of_call(step) if timed else 0.0
    return Outcome(
        verdict, reason, graphs, number, recompiles, made.kernels(), fallbacks(made), round(first, 3), call
    )


def other_roundings(prepare: Prepare, steps: range) -> list[Leaves]:
    """Return runs of a program from numbers that are rounded otherwise."""
    return [rounded_otherwise(prepare, steps, seed) for seed in range(OTHER_ROUNDINGS)]


@contextmanager
def observed_graphs() -> Iterator[Made]:
    """Collect the graphs that litz compiles under its name, and its warnings."""
    made = Made()

    def observe(compiled: Compiled) -> None:
        made.compiled.append(compiled)
        count_graph(compiled)

    with mock.patch("litz.capture.aot.count_graph", observe), heard_warnings(made.said):
        yield made


def fallbacks(made: Made) -> dict[str, int]:
    """Count the operations that ran as their ATen routine, by target and reason."""
    artifacts = [compiled.artifact for compiled in made.compiled if compiled.artifact]
    counted = Counter(f"{one.target}: {one.reason}" for artifact in artifacts for one in artifact.fallbacks)
    return dict(counted.most_common())
