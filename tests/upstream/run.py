"""Judge litz by PyTorch's published tests.

The tests call the compiler as always; litz is put in the place of Inductor. A test counts if it passes under litz, or
under aot_eager or Inductor of the same torch, under which each failure is run too. Tests that examine Inductor itself
are set aside by rule (`upstream.set_aside`). Results are kept as they come, a line of JSON for each test and compiler,
and the same command goes on where it was stopped. Exit code 1 when a test that counts fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

from upstream import report
from upstream.outcome import GOOD, LITZ, PASSED, PEERS, SET_ASIDE, Outcome, Outcomes, read
from upstream.pool import Collected, Pool, SuiteRefused, Work
from upstream.sources import download
from upstream.suites import SUITES, Suite
from upstream.worker import Task


def parser() -> argparse.ArgumentParser:
    """Read the command line."""
    made = argparse.ArgumentParser(prog="upstream", description=__doc__)
    made.add_argument("--suites", default="*", help="names or shell patterns, separated by commas")
    made.add_argument("--only", default="*", help="patterns of tests (Class::test), separated by commas")
    made.add_argument("--shard", default="1/1", help="K/N: the Kth of N parts of each suite")
    made.add_argument("--every", type=int, default=1, help="each Nth test of a suite, a sample")
    made.add_argument("--workers", type=int, default=1, help="processes at a time, of one thread each")
    made.add_argument("--timeout", type=float, default=300, help="seconds that a test may take")
    made.add_argument("--results", type=Path, default=Path("build/upstream"), help="the folder of results")
    made.add_argument("--again", choices=("failed", "all"), help="run such tests again under litz")
    made.add_argument("--no-peers", action="store_true", help="leave out the runs under other compilers")
    made.add_argument("--report", type=Path, help="write the page of results, and run nothing")
    return made


def matching(name: str, patterns: str) -> bool:
    """Report that a name matches one of several patterns, separated by commas."""
    return any(fnmatchcase(name, pattern) for pattern in patterns.split(","))


class Run:
    """A run over suites, which appends to a file and to the outcomes."""

    def __init__(self, options: argparse.Namespace, tests: Path) -> None:
        self.options, self.tests = options, tests
        self.path = options.results / "results.jsonl"
        self.outcomes: Outcomes = read([self.path])

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome."""
        self.outcomes[outcome.key] = outcome
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(outcome.to_line() + "\n")

    def judge(self, suite: Suite) -> None:
        """Run a suite under litz, and what fails under the other compilers."""

        def choose(collected: Collected) -> list[Work]:
            number, of = map(int, self.options.shard.split("/"))
            work = []
            for name, reason in collected[:: self.options.every][number - 1 :: of]:
                if not matching(name, self.options.only):
                    continue
                if reason:
                    outcome = Outcome(suite.name, name, LITZ, SET_ASIDE, reason)
                    if self.outcomes.get(outcome.key) != outcome:
                        self.add(outcome)
                elif backends := self._due(suite, name):
                    work.append((name, backends))
            return work

        task = Task(suite, self.tests.resolve(), self.options.results.resolve())
        try:
            for outcome in Pool(task, self.options.workers, self.options.timeout, choose).outcomes():
                self.add(outcome)
                row = f"{outcome.seconds:6.1f} s {outcome.backend} {suite.name}::{outcome.test}"
                print(row, outcome.verdict, outcome.reason[:200], flush=True)
        except SuiteRefused as refusal:
            print(f"{suite.name} does not run: {refusal}", flush=True)

    def _due(self, suite: Suite, name: str) -> tuple[str, ...]:
        """Return the compilers to run a test with, the next one only if the one before fails."""
        known = {
            backend: outcome
            for backend in (LITZ, *PEERS)
            if (outcome := self.outcomes.get((suite.name, name, backend))) is not None
            and outcome.verdict != SET_ASIDE  # by a rule that no longer applies
        }
        again = self.options.again
        good = LITZ in known and known[LITZ].verdict in GOOD
        due = (LITZ,) if LITZ not in known or again == "all" or (again == "failed" and not good) else ()
        judged = any(known[peer].verdict == PASSED for peer in PEERS if peer in known)
        if self.options.no_peers or judged or (good and not due):
            return due
        return due + tuple(peer for peer in PEERS if peer not in known)


def main(arguments: list[str] | None = None) -> int:
    """Run, and return the exit code."""
    options = parser().parse_args(arguments)
    options.results.mkdir(parents=True, exist_ok=True)
    if options.report is not None:
        report.write(options.report, read([options.results / "results.jsonl"]))
        return 0
    os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    # Compiled graphs are not kept from run to run: the code that compiled them may have changed.
    for folder in (options.results / "cache").glob("*"):
        if folder.name != "binaries":
            shutil.rmtree(folder, ignore_errors=True)
    run = Run(options, download(options.results))
    for suite in SUITES:
        if matching(suite.name, options.suites):
            run.judge(suite)
    print(report.summary(run.outcomes))
    return 1 if any(row.left for row in report.count(run.outcomes).values()) else 0
