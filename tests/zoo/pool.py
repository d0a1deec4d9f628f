"""Watched processes, one for each case: a crash or a hang is the verdict of the mode that it happened in."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from zoo.cases import Case
from zoo.execution import MODES
from zoo.row import Outcome, Row
from zoo.worker import main


@dataclass(slots=True)
class Running:
    """A running case."""

    row: Row
    process: BaseProcess
    connection: Connection
    deadline: float

    def heard(self) -> bool:
        """Take one message; return whether it was the last."""
        try:
            message: tuple[Any, ...] = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            if code:
                name = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                self.lost("crash", name)
            return True
        if message[0] == "eager":
            self.row.eager_error = message[1]
        elif message[0] == "built":
            self.row.title, self.row.parameters = message[1:]
        else:
            self.row.outcomes[message[0]] = message[1]
        return False

    def lost(self, verdict: str, reason: str) -> None:
        """Give the verdict to the running mode; before the first the failure is eager's."""
        self.process.kill()
        self.process.join()
        if not self.row.title:
            self.row.eager_error = f"{verdict}: {reason}"
            return
        mode = next(mode for mode in MODES if mode not in self.row.outcomes)
        self.row.outcomes[mode] = Outcome(verdict, reason)


@dataclass(slots=True)
class Pool:
    """`size` processes at a time, forked from one that has imported everything; `patience` is the seconds of a case.

    Binaries are kept in `folder` from run to run, since a source's key names all that they are built from. Compiled
    graphs are not: the code that made them may have changed.
    """

    size: int
    folder: Path
    patience: float
    busy: list[Running] = field(default_factory=list)

    def rows(self, cases: Iterable[Case]) -> Iterator[Row]:
        """Yield each case's row as it is finished."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["zoo.warm"])
        cache = self.folder / "cache"
        for made in cache.glob("*") if cache.exists() else ():
            if made.name != "binaries":
                shutil.rmtree(made, ignore_errors=True)
        waiting = iter(cases)
        try:
            while self._filled(context, waiting, cache):
                ready = wait([running.connection for running in self.busy], timeout=1.0)
                for running in list(self.busy):
                    late = time.monotonic() > running.deadline
                    if late:
                        running.lost("timeout", f"{self.patience:.0f} s passed")
                    if late or (running.connection in ready and running.heard()):
                        self.busy.remove(running)
                        yield running.row
        finally:
            for running in self.busy:
                running.process.kill()

    def _filled(self, context: ForkServerContext, waiting: Iterator[Case], cache: Path) -> bool:
        """Start cases until there are enough; return whether any is at work."""
        while len(self.busy) < self.size:
            case = next(waiting, None)
            if case is None:
                break
            own, other = context.Pipe(duplex=False)
            args = (other, case, str(self.folder / "log.txt"), str(cache))
            process = context.Process(target=main, args=args, daemon=True)
            process.start()
            other.close()
            self.busy.append(Running(Row(case), process, own, time.monotonic() + self.patience))
        return bool(self.busy)
