"""The search for faster schedules: candidate configs are built in parallel, then timed on a call's own inputs."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from litz.artifact import TunedTiles
from litz.cache.artifacts import ArtifactCache
from litz.host.runtime.load import HostFunction
from litz.loading import Loader
from litz.notices import log_artifact
from litz.timing import Timer
from litz.tuning.benchmark_launch import benchmark_buffers
from litz.tuning.tunable_kernels import TunableKernel
from litz_ir.errors import KernelError
from litz_ir.plan import Kernel, Schedule, launches_on, schedules_of
from litz_ir.target import LaunchFunction, PreparedTarget, SourceUnit, Target, TunableTarget, address_function

log = logging.getLogger("litz")

_GAIN = 0.97
"""Largest time of a better schedule, as a share of the default schedule's; smaller gains are within noise."""

ROUNDS, LAST_ROUNDS = 5, 11
"""Timings of each candidate, then again of the best one and the default schedule."""

_BUILD_SHARE = 0.75
"""Share of the remaining time that building candidates may take."""

PATIENCE = 8
"""Calls after which kernels that were not launched, or not at such sizes, keep their schedules."""

Candidate = tuple[Kernel, LaunchFunction]
"""A kernel with another schedule, and its launcher."""

Run = tuple[tuple[Schedule, ...], Callable[[], None]]
"""Schedules of a kernel, and a function that launches it."""


class TileSearch:
    """Tunes the kernels of a graph during its calls, for ``seconds`` in all; ``sampler`` makes the timer.

    The choices are in ``found``, by kernel name, and in the cache unless a candidate was not built in time. A kernel
    that is not timed, for lack of time or memory, keeps its schedule and is tuned by a later process. One thread at
    a time may use an instance.
    """

    def __init__(
        self,
        loader: Loader,
        tunable: Sequence[TunableKernel],
        cache: ArtifactCache,
        sampler: Callable[[], Timer],
        seconds: float,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.found: dict[str, TunedTiles] = {}
        self.spent = 0.0
        self._loader = loader
        self._cache = cache
        self._sampler = sampler
        self._now = now
        self._seconds = seconds
        self._end = 0.0
        self._calls = 0
        self._pending = {each.kernel.name: each for each in tunable}
        self._candidates: dict[str, list[Candidate]] = {}
        self._late: set[str] = set()
        self._sample: Timer | None = None
        self._call: HostFunction | None = None
        plan = loader.artifact.plan
        self._target: Target = loader.targets[plan.device]
        self._plan = launches_on(plan.device.kind, plan)

    @property
    def over(self) -> bool:
        """True when further calls cannot find anything."""
        return not self._pending or self.spent >= self._seconds or self._calls >= PATIENCE

    def begun(self) -> bool:
        """Build the candidates in the first call; return True. Raises any failure."""
        if self._call is None:
            start = self._now()
            self._end = start + self._seconds - self.spent
            self._candidates = self._built()
            self._call = self._loader.call(self._watch)
            self.spent += self._now() - start
        return True

    def run(self, args: list[Any]) -> Sequence[Any]:
        """Run a call of the graph, in which each kernel is timed before its launch; raises the errors of the graph."""
        self.begun()
        assert self._call is not None
        start = self._now()
        self._end = start + self._seconds - self.spent
        self._calls += 1
        try:
            return self._call(args)
        finally:
            self.spent += self._now() - start
            self._sample = None  # it holds memory

    # --- candidates -----------------------------------------------------------------------------------------

    def _built(self) -> dict[str, list[Candidate]]:
        """Return the candidates that were built and loaded in time; those of the slowest kernels are built first."""
        target = self._target
        count = target.prepare() if isinstance(target, PreparedTarget) else torch.get_num_threads()
        count = min(count, self._loader.config.compile_threads or count)
        pool = ThreadPoolExecutor(max_workers=max(1, count), thread_name_prefix="litz-tune")
        made = {pool.submit(self._build, kernel): kernel for kernel in self._candidate_kernels()}
        wait(made, timeout=max(0.0, _BUILD_SHARE * (self._end - self._now())))
        pool.shutdown(wait=False, cancel_futures=True)
        candidates: dict[str, list[Candidate]] = {}
        for future, kernel in made.items():
            if not future.done() or future.cancelled():
                self._late.add(kernel.name)
                continue
            try:
                function = self._load(kernel, *future.result())
            except Exception as error:
                log.debug("litz: a candidate of %s is left out: %s", kernel.name, error)
                continue
            candidates.setdefault(kernel.name, []).append((kernel, function))
        return candidates

    def _candidate_kernels(self) -> list[Kernel]:
        """Return the kernels to tune with all schedules but the default."""
        assert isinstance(self._target, TunableTarget)
        return [k for each in self._pending.values() for k in self._target.candidates(each.kernel)[1:]]

    def _build(self, kernel: Kernel) -> tuple[SourceUnit, Path]:
        """Emit and compile one candidate."""
        (unit,) = self._target.emit(replace(self._plan, kernels=(kernel,)))
        return unit, self._cache.binary(unit, self._target)

    def _load(self, kernel: Kernel, unit: SourceUnit, binary: Path) -> LaunchFunction:
        """Load one candidate."""
        module = self._target.load([unit], [binary], {kernel.name: kernel})
        return address_function(module.function(kernel.name), kernel.name)

    # --- timing ---------------------------------------------------------------------------------------------

    def _watch(
        self, name: str, function: LaunchFunction, addresses: Sequence[int], symbols: Sequence[int | float]
    ) -> None:
        """Tune the kernel that is about to be launched, if it is to be tuned and time is left."""
        tunable = self._pending.get(name)
        if tunable is None or self._now() >= self._end or not tunable.fits(symbols):
            return
        del self._pending[name]
        candidates = self._candidates.pop(name, [])
        if not candidates:
            return
        try:
            choice = self._choice(tunable.kernel, function, candidates, addresses, symbols)
            if choice is None:
                return
            self.found[name] = choice
            if name not in self._late:
                self._cache.tiles.write(tunable.key, choice)
        except torch.OutOfMemoryError:
            log.info("litz: there is no memory to tune %s", name)
        except Exception as error:
            self._loader.failures.report(error, "tuning", f"{name} keeps its schedule")

    def _choice(
        self,
        kernel: Kernel,
        function: LaunchFunction,
        candidates: Sequence[Candidate],
        addresses: Sequence[int],
        symbols: Sequence[int | float],
    ) -> TunedTiles | None:
        """Return the fastest of a kernel and its candidates; ``None`` where it cannot run, fails, or time has run
        out."""
        device = torch.device(self._loader.artifact.plan.device.kind)
        allocated = benchmark_buffers(kernel, addresses, symbols, device)
        if allocated is None:
            return None
        if self._sample is None:
            self._sample = self._sampler()
        buffers, memory = allocated
        runs = []
        for each, launch in ((kernel, function), *candidates):
            call = partial(launch, buffers, symbols)
            try:
                call()
            except KernelError as error:
                log.debug("litz: %s fails with %s: %s", each.name, schedules_of(each), error)
                if each is kernel:
                    return None
                continue
            runs.append((schedules_of(each), call))
        found = self._fastest(kernel.name, runs)
        del memory
        return found if self._now() < self._end else None

    def _fastest(self, kernel: str, runs: Sequence[Run]) -> TunedTiles:
        """Return the first of the runs, the default, unless another one is clearly faster twice."""
        own, start = runs[0]
        before, *others = medians = self._medians([call for _, call in runs], ROUNDS)
        log_artifact("benchmarking", self._plan.name, lambda: _timed(kernel, runs, medians))
        if others and min(others) <= _GAIN * before:
            schedules, call = runs[1 + others.index(min(others))]
            before, after = self._medians([start, call], LAST_ROUNDS)
            if after <= _GAIN * before:
                return TunedTiles(schedules, after, before, own)
        return TunedTiles(own, before, before, own)

    def _medians(self, calls: Sequence[Callable[[], None]], rounds: int) -> list[float]:
        """Return the median times of some calls, timed in alternation so that clock changes affect all of them."""
        assert self._sample is not None
        samples = [[self._sample(call) for call in calls]]
        while len(samples) < rounds and self._now() < self._end:
            samples.append([self._sample(call) for call in calls])
        return [statistics.median(each) for each in zip(*samples, strict=True)]


def _timed(kernel: str, runs: Sequence[Run], medians: Sequence[float]) -> Iterator[str]:
    """Yield the median time of a launch of a kernel with each of its candidate configs."""
    for (schedules, _), seconds in zip(runs, medians, strict=True):
        yield f"kernel {kernel} takes {1e6 * seconds:.1f} us with {' '.join(map(str, schedules))}"
