"""Watched processes that run a suite's tests: a crash or a hang is the verdict of the test that it happened in."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess

from upstream.outcome import PASSED, SKIPPED, Outcome
from upstream.worker import COLLECTED, Task, main

TESTS_PER_PROCESS = 250
BEFORE_FIRST = 400.0
"""Seconds until a process has imported its suite."""

Collected = list[tuple[str, str]]
"""Tests, each with the reason for which it is set aside, or an empty one."""

Work = tuple[str, tuple[str, ...]]
"""A test and the compilers to run it with, the next one only if the one before fails."""

Choice = Callable[[Collected], list[Work]]


class SuiteRefused(Exception):
    """A suite that cannot be run under this version of torch."""


@dataclass(slots=True)
class Lane:
    """A process and its tests."""

    process: BaseProcess
    connection: Connection
    deadline: float
    share: dict[str, tuple[str, ...]] = field(default_factory=dict)
    running: tuple[str, str] | None = None
    judged: bool = False

    def stop(self) -> str:
        """End the process and say how it ended."""
        self.process.kill()
        self.process.join()
        code = self.process.exitcode or 0
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@dataclass(slots=True)
class Pool:
    """`size` processes at a time, of which each test may take `patience` seconds."""

    task: Task
    size: int
    patience: float
    choice: Choice
    pending: deque[Work] | None = None
    lanes: list[Lane] = field(default_factory=list)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcome of each test that `choice` selects among those collected, as it ends. Raises
        ``SuiteRefused``."""
        context = multiprocessing.get_context("spawn")
        try:
            self._start(context)
            while self.lanes:
                ready = wait([lane.connection for lane in self.lanes], timeout=1.0)
                for lane in list(self.lanes):
                    outcome = None
                    if lane.connection in ready:
                        outcome = self._hear(lane)
                    elif time.monotonic() > lane.deadline:
                        outcome = self._lost(lane, "timeout", f"{self.patience:.0f} s passed")
                    if outcome is not None:
                        yield outcome
                while self.pending and len(self.lanes) < self.size:
                    self._start(context)
        finally:
            for lane in self.lanes:
                lane.stop()

    def _start(self, context: SpawnContext) -> None:
        here, there = context.Pipe()
        process = context.Process(target=main, args=(there, self.task))
        process.start()
        there.close()
        self.lanes.append(Lane(process, here, time.monotonic() + BEFORE_FIRST))

    def _hear(self, lane: Lane) -> Outcome | None:
        try:
            kind, *values = lane.connection.recv()
        except (EOFError, OSError):
            return self._lost(lane, "crash", "")
        lane.deadline = time.monotonic() + self.patience
        if kind == COLLECTED:
            if self.pending is None:
                self.pending = deque(self.choice(values[0]))
            taken = min(TESTS_PER_PROCESS, len(self.pending))
            lane.share = dict(self.pending.popleft() for _ in range(taken))
            lane.connection.send(list(lane.share.items()))
        elif kind == "begin":
            lane.running = (values[0], values[1])
        elif kind == "outcome":
            return self._ended(lane, *values)
        elif kind == "refused":
            raise SuiteRefused(values[0])
        elif self.pending is None:
            raise SuiteRefused(f"pytest collects none of its tests (exit code {values[0]})")
        else:
            self._retire(lane)
        return None

    def _ended(
        self, lane: Lane, test: str, backend: str, verdict: str, reason: str, seconds: float
    ) -> Outcome:
        """Take a test's outcome under one compiler, and leave those that come after it to be run."""
        rest = lane.share[test][lane.share[test].index(backend) + 1 :]
        lane.running, lane.judged = None, True
        if verdict in (PASSED, SKIPPED) or not rest:
            del lane.share[test]
        else:
            lane.share[test] = rest
        return Outcome(self.task.suite.name, test, backend, verdict, reason, seconds)

    def _lost(self, lane: Lane, verdict: str, reason: str) -> Outcome | None:
        reason = reason or lane.stop()
        if self.pending is None:
            raise SuiteRefused(f"the process ended while it imported the suite: {reason}")
        outcome = self._ended(lane, *lane.running, verdict, reason, 0.0) if lane.running else None
        self._retire(lane)
        return outcome

    def _retire(self, lane: Lane) -> None:
        """Remove a process, and return the tests that it has not run. Raises ``SuiteRefused`` if it ran none."""
        ended = lane.stop()
        if lane.share and not lane.judged:
            raise SuiteRefused(f"a process ended before its first test: {ended}")
        self.lanes.remove(lane)
        assert self.pending is not None
        self.pending.extendleft(reversed(lane.share.items()))
