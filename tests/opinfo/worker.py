"""Worker process that judges units, sample by sample, and reports each to its parent."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch._dynamo import guards

import litz
from opinfo.entries import Unit, tolerance
from opinfo.exceptions import UNDEFINED_VALUES
from opinfo.execution import Program, Seen, program_of, run
from opinfo.judge import Mismatch, Reference, mismatch
from opinfo.outcome import EXCEPTED, IN_PARTS, PASSED, Outcome, Place
from opinfo.sample import Sample
from opinfo.samples import DYNAMIC, Mode, modes_of, samples_of, widened
from opinfo.watching import Made, Watcher

PEERS = ("aot_eager", "eager")


@dataclass(frozen=True, slots=True)
class Task:
    """A unit, the number of samples of each mode (`None`: all), and the samples to leave out or to run alone."""

    unit: Unit
    limits: dict[str, int | None]
    skip: frozenset[Place] = frozenset()
    only: frozenset[Place] | None = None

    def places(self) -> Iterator[tuple[Mode, list[tuple[int, Sample]]]]:
        """Yield the samples to run, by mode."""
        for mode in modes_of(self.unit):
            if mode in self.limits:
                chosen = enumerate(samples_of(self.unit, mode, self.limits[mode]))
                yield mode, [(i, sample) for i, sample in chosen if self._wanted((mode, i))]

    def _wanted(self, place: Place) -> bool:
        return place not in self.skip and (self.only is None or place in self.only)


def main(connection: Connection, said: str, cache: str) -> None:
    """Take tasks until there is none; `("begin", place)` comes before each sample, `("outcome", it)` after.

    What is printed goes to the file `said`; `cache` is litz's cache folder.
    """
    log = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    with prepared(cache):
        while (task := connection.recv()) is not None:
            for place, judge in judgements(task):
                connection.send(("begin", place))
                outcome = judge()
                connection.send(("outcome", outcome))
                if "CUDA error" in outcome.reason:
                    # Nothing runs on a device after that in this process.
                    print(task.unit, outcome, flush=True)
                    os._exit(3)
            connection.send(("end", None))


def judgements(task: Task) -> Iterator[tuple[Place, Callable[[], Outcome]]]:
    """Yield each sample of a task with its judge."""
    for mode, samples in task.places():
        judge = Judge(task.unit, mode)
        for index, sample in samples:
            yield (mode, index), functools.partial(judge.outcome, index, sample)


@contextlib.contextmanager
def prepared(cache: str) -> Iterator[None]:
    """Set one thread, no limit on recompiling, tracing of scalars and data-dependent shapes, and a cache folder.

    Dynamo does not time its guards, for which it empties the CPU's caches.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    traced: dict[str, Any] = {
        "recompile_limit": 10**6,
        "accumulated_recompile_limit": 10**6,
        "capture_scalar_outputs": True,
        "capture_dynamic_output_shape_ops": True,
    }
    with (
        torch._dynamo.config.patch(**traced),
        mock.patch.object(guards, "profile_guard_manager", lambda *_: 0.0),
        litz.config.patch(cache_dir=cache, fallback="warn"),
    ):
        yield
    torch.set_num_threads(threads)


@dataclass(slots=True)
class Judge:
    """Compares litz with eager on the samples of one unit in one mode."""

    unit: Unit
    mode: Mode
    watcher: Watcher = field(default_factory=Watcher)
    program: Program = field(init=False)
    compiled: dict[Any, Program] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        torch._dynamo.reset()
        self.program = program_of(self.unit, self.mode)

    def outcome(self, index: int, sample: Sample) -> Outcome:
        """Run one sample both ways, and where they differ once more without litz."""
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verdict, reason, made = self._judged(sample)
        return Outcome(
            self.mode,
            index,
            verdict,
            reason,
            "" if verdict == PASSED else sample.describe()[:300],
            _how(made),
            made.calls(),
            round(time.perf_counter() - start, 3),
        )

    def _judged(self, sample: Sample) -> tuple[str, str, Made]:
        expected = run(self.program, sample.copied(), self.mode)
        reference = functools.cache(lambda: run(self.program, sample.copied(widened), self.mode))
        with self.watcher.watching() as made:
            actual = run(self._compiled(self.watcher), sample.copied(), self.mode)
        found = self._compared(actual, expected, reference)
        if found is None:
            failed = made.fell_back()
            return (PASSED, "", made) if failed is None else ("fell back", failed, made)
        for peer in PEERS:
            actual = run(self._compiled(peer), sample.copied(), self.mode)
            again = self._compared(actual, expected, reference)
            if again is not None and again.fault == found.fault:
                reason = f"also under {peer}: {again.fault}: {again.reason}"
                return self._in_parts(sample, expected, reference, reason)
        return found.fault, found.reason, made

    def _in_parts(
        self, sample: Sample, expected: Seen, reference: Reference, reason: str
    ) -> tuple[str, str, Made]:
        """Judge as several graphs a sample that fails as one graph under every backend."""
        with self.watcher.watching() as made:
            actual = run(self._compiled(self.watcher, fullgraph=False), sample.copied(), self.mode)
        found = self._compared(actual, expected, reference)
        if found is not None:
            return EXCEPTED, reason, made
        failed = made.fell_back()
        return (IN_PARTS, reason, made) if failed is None else ("fell back", failed, made)

    def _compared(self, actual: Seen, expected: Seen, reference: Reference) -> Mismatch | None:
        allowed = functools.partial(tolerance, self.unit)
        return mismatch(actual, expected, reference, allowed, self.unit.entry not in UNDEFINED_VALUES)

    def _compiled(self, backend: Any, fullgraph: bool = True) -> Program:
        key = backend, fullgraph
        if key not in self.compiled:
            self.compiled[key] = torch.compile(
                self.program, backend=backend, fullgraph=fullgraph, dynamic=self.mode in DYNAMIC
            )
        return self.compiled[key]


def _how(made: Made) -> str:
    if made.kernels():
        return "both" if made.calls() else "generated"
    return "aten" if made.calls() else "none"
