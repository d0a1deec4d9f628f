"""Watched processes, one for each case: a crash or a hang is a verdict on what was running, and costs no other case."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar


class Row(Protocol):
    """The outcome of a case, which its process reports by messages."""

    def receive(self, message: tuple[Any, ...]) -> None:
        """Note one message."""

    def lost(self, verdict: str, reason: str) -> None:
        """Note that the process ended or was stopped."""


RowType = TypeVar("RowType", bound=Row)
CaseType = TypeVar("CaseType")


@dataclass(slots=True)
class Running(Generic[RowType]):
    """A running case."""

    row: RowType
    process: BaseProcess
    connection: Connection
    deadline: float

    def heard(self) -> bool:
        """Take one message; return whether it was the last."""
        try:
            self.row.receive(self.connection.recv())
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            if code:
                name = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                self.stop("crash", name)
            return True
        return False

    def stop(self, verdict: str, reason: str) -> None:
        """End the process, and note why."""
        self.process.kill()
        self.process.join()
        self.row.lost(verdict, reason)


@dataclass(slots=True)
class Pool(Generic[CaseType, RowType]):
    """`size` processes at a time, forked from one that has imported `preload`; `patience` is the seconds of a case.

    `target` is the function of a process, called with a connection, the case, the path of a log and that of a cache,
    and `row` makes the outcome of a case. Binaries are kept in `folder` from run to run, since a source's key names all
    that they are built from. Compiled graphs are not: the code that made them may have changed.
    """

    size: int
    folder: Path
    patience: float
    preload: str
    target: Callable[[Connection, CaseType, str, str], None]
    row: Callable[[CaseType], RowType]
    busy: list[Running[RowType]] = field(default_factory=list)

    def rows(self, cases: Iterable[CaseType]) -> Iterator[RowType]:
        """Yield each case's row as it is finished."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([self.preload])
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
                        running.stop("timeout", f"{self.patience:.0f} s passed")
                    if late or (running.connection in ready and running.heard()):
                        self.busy.remove(running)
                        yield running.row
        finally:
            for running in self.busy:
                running.process.kill()

    def _filled(self, context: ForkServerContext, waiting: Iterator[CaseType], cache: Path) -> bool:
        """Start cases until there are enough; return whether any is at work."""
        while len(self.busy) < self.size:
            try:
                case = next(waiting)
            except StopIteration:
                break
            own, other = context.Pipe(duplex=False)
            args = (other, case, str(self.folder / "log.txt"), str(cache))
            process = context.Process(target=self.target, args=args, daemon=True)
            process.start()
            other.close()
            self.busy.append(Running(self.row(case), process, own, time.monotonic() + self.patience))
        return bool(self.busy)
