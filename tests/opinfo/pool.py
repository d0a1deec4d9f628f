"""Parallel worker processes under watch: a crash or a hang is the verdict of the sample that it happened in."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from opinfo.outcome import Outcome, Place, UnitResult
from opinfo.worker import Task, main

Context = ForkServerContext | SpawnContext

UNITS_PER_PROCESS = 60
PATIENCE = 120.0  # seconds that one sample may take
BEFORE_FIRST = 300.0  # and a task, until its first sample begins


@dataclass(slots=True)
class Lane:
    """A worker process and its current task."""

    context: Context
    log: Path
    cache: Path
    process: BaseProcess | None = None
    connection: Connection | None = None
    task: Task | None = None
    result: UnitResult | None = None
    place: Place | None = None
    deadline: float = 0.0
    served: int = 0

    def give(self, task: Task) -> None:
        """Start on a task, in a fresh process when the present one is gone or has served enough."""
        if self.process is None or self.served >= UNITS_PER_PROCESS:
            self.stop()
            own, other = self.context.Pipe()
            self.process = self.context.Process(
                target=main, args=(other, str(self.log), str(self.cache)), daemon=True
            )
            self.process.start()
            other.close()
            self.connection, self.served = own, 0
        assert self.connection is not None
        self.task, self.place = task, None
        self.result = self.result or UnitResult(task.unit, task.limits)
        self.deadline = time.monotonic() + BEFORE_FIRST
        self.served += 1
        self.connection.send(task)

    def hear(self) -> UnitResult | None:
        """Take one message, which must be there; the unit's result when it was the last."""
        assert self.connection is not None and self.result is not None
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            return self.lost("crash")
        self.deadline = time.monotonic() + PATIENCE
        if kind == "begin":
            self.place = value
        elif kind == "outcome":
            self.result.outcomes[value.place] = value
        else:
            finished, self.result, self.task = self.result, None, None
            return finished
        return None

    def lost(self, verdict: str) -> UnitResult | None:
        """Give the verdict to the current sample, and go on after it in a new process; a unit that fails before any
        sample is given up."""
        assert self.task is not None and self.result is not None and self.process is not None
        self.process.kill()
        self.process.join()
        code = self.process.exitcode or 0
        reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self.process = None
        mode, index = self.place or ("forward", -1)
        blamed = Outcome(mode, index, verdict, reason if verdict == "crash" else f"{PATIENCE:.0f} s passed")
        self.result.outcomes[blamed.place] = blamed
        if self.place is None:
            finished, self.result, self.task = self.result, None, None
            return finished
        self.give(replace(self.task, skip=self.task.skip | frozenset(self.result.outcomes)))
        return None

    def stop(self) -> None:
        """End the process, if there is one."""
        if self.process is not None and self.connection is not None:
            try:
                self.connection.send(None)
            except OSError:
                self.process.kill()
            self.process.join(10)
            self.process.kill()
            self.process = None


@dataclass(slots=True)
class Pool:
    """`size` lanes; processes are forked from one that has imported everything, so a fresh one costs little, where
    the device stands it (CUDA does not).

    Binaries are kept in `folder` from run to run, since a source's key names all that it is built from. Compiled
    graphs are not: the code that made them may have changed.
    """

    size: int
    folder: Path
    device: str = "cpu"
    lanes: list[Lane] = field(default_factory=list)

    def results(self, tasks: Iterable[Task]) -> Iterator[UnitResult]:
        """Yield each task's result as it is finished, in no particular order."""
        context: Context
        if self.device == "cpu":
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["opinfo.warm"])
        else:
            context = multiprocessing.get_context("spawn")
        cache = self.folder / "cache"
        shutil.rmtree(cache / "graphs", ignore_errors=True)
        self.lanes = [Lane(context, self.folder / f"worker-{n}.log", cache) for n in range(self.size)]
        waiting = iter(tasks)
        try:
            for lane in self.lanes:
                self._next(lane, waiting)
            while busy := [lane for lane in self.lanes if lane.task is not None]:
                ready = wait([lane.connection for lane in busy if lane.connection], timeout=1.0)
                for lane in busy:
                    finished = None
                    if lane.connection in ready:
                        finished = lane.hear()
                    elif time.monotonic() > lane.deadline:
                        finished = lane.lost("timeout")
                    if finished is not None:
                        self._next(lane, waiting)
                        yield finished
        finally:
            for lane in self.lanes:
                lane.stop()

    def _next(self, lane: Lane, waiting: Iterator[Task]) -> None:
        task = next(waiting, None)
        if task is not None:
            lane.give(task)
