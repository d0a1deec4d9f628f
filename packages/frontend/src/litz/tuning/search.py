"""The search for quicker tiles: candidates built side by side, then timed on what a call gives each kernel."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from litz.artifact import TunedTiles
from litz.cache.artifacts import ArtifactCache
from litz.host.load import HostFunction
from litz.loading import Loader
from litz.targets import launches_on
from litz.timing import Timer
from litz.tuning.benchmark_launch import benchmark_buffers
from litz.tuning.tunable_kernels import TunableKernel
from litz_ir.errors import KernelError
from litz_ir.plan import Kernel, Schedule, schedules_of
from litz_ir.target import LaunchFunction, PreparedTarget, SourceUnit, Target, TunableTarget

log = logging.getLogger("litz")

GAIN = 0.97
"""The share of the rule's time that another choice must not exceed: less is noise, and not worth other roundings."""

ROUNDS, LAST_ROUNDS = 5, 11
"""How often each candidate is timed, and how often the best of them and the rule's choice are, once more."""

BUILD_SHARE = 0.75
"""Of the time that is left, what building may take."""

PATIENCE = 8
"""Calls after which kernels that no call has launched, or none at such sizes, stay as they are."""

Candidate = tuple[Kernel, LaunchFunction]


class TileSearch:
    """Tunes the kernels of a graph while it is called, for ``seconds`` in all; ``sampler`` makes what times a launch.

    What is found is in ``found``, by the kernel's name, and in the cache, unless a candidate was not built in time. A
    kernel that is not timed, for want of time or of memory, stays as it is, and is tuned by another process. One thread
    at a time may call it.
    """

    def __init__(
        self,
        loader: Loader,
        subjects: Sequence[TunableKernel],
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
        self._pending = {subject.kernel.name: subject for subject in subjects}
        self._rivals: dict[str, list[Candidate]] = {}
        self._late: set[str] = set()
        self._sample: Timer | None = None
        self._call: HostFunction | None = None
        plan = loader.artifact.plan
        self._target: Target = loader.targets[plan.device]
        self._plan = launches_on(plan.device.kind, plan)

    @property
    def over(self) -> bool:
        """True when no call can find anything more."""
        return not self._pending or self.spent >= self._seconds or self._calls >= PATIENCE

    def begun(self) -> bool:
        """True; the candidates are built when this is first asked. Raises what stands in the way."""
        if self._call is None:
            start = self._now()
            self._end = start + self._seconds - self.spent
            self._rivals = self._built()
            self._call = self._loader.call(self._watch)
            self.spent += self._now() - start
        return True

    def run(self, args: list[Any]) -> Sequence[Any]:
        """A call of the graph. Each kernel is timed before it is launched. Raises what the graph raises."""
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
        """The candidates that were built and loaded in time; those of the dearest kernels are built first."""
        target = self._target
        count = target.prepare() if isinstance(target, PreparedTarget) else torch.get_num_threads()
        pool = ThreadPoolExecutor(max_workers=max(1, count), thread_name_prefix="litz-tune")
        made = {pool.submit(self._build, kernel): kernel for kernel in self._candidates()}
        wait(made, timeout=max(0.0, BUILD_SHARE * (self._end - self._now())))
        pool.shutdown(wait=False, cancel_futures=True)
        rivals: dict[str, list[Candidate]] = {}
        for future, kernel in made.items():
            if not future.done() or future.cancelled():
                self._late.add(kernel.name)
                continue
            try:
                function = self._load(kernel, *future.result())
            except Exception as error:
                log.debug("litz: a candidate of %s is left out: %s", kernel.name, error)
                continue
            rivals.setdefault(kernel.name, []).append((kernel, function))
        return rivals

    def _candidates(self) -> list[Kernel]:
        """Every other way to cut a kernel that is to be tuned."""
        assert isinstance(self._target, TunableTarget)
        return [k for each in self._pending.values() for k in self._target.candidates(each.kernel)[1:]]

    def _build(self, kernel: Kernel) -> tuple[SourceUnit, Path]:
        (unit,) = self._target.emit(replace(self._plan, kernels=(kernel,)))
        return unit, self._cache.binary(unit, self._target)

    def _load(self, kernel: Kernel, unit: SourceUnit, binary: Path) -> LaunchFunction:
        return self._target.load([unit], [binary], {kernel.name: kernel}).function(kernel.name)

    # --- timing ---------------------------------------------------------------------------------------------

    def _watch(
        self, name: str, function: LaunchFunction, addresses: Sequence[int], symbols: Sequence[int | float]
    ) -> None:
        """Tune the kernel that is about to be launched, where that is wanted and there is time."""
        subject = self._pending.get(name)
        if subject is None or self._now() >= self._end or not subject.fits(symbols):
            return
        del self._pending[name]
        rivals = self._rivals.pop(name, [])
        if not rivals:
            return
        try:
            choice = self._choice(subject.kernel, function, rivals, addresses, symbols)
            if choice is None:
                return
            self.found[name] = choice
            if name not in self._late:
                self._cache.tiles.write(subject.key, choice)
        except torch.OutOfMemoryError:
            log.info("litz: there is no memory to tune %s", name)
        except Exception as error:
            self._loader.failures.report(error, "tuning", f"{name} keeps its tiles")

    def _choice(
        self,
        kernel: Kernel,
        function: LaunchFunction,
        rivals: Sequence[Candidate],
        addresses: Sequence[int],
        symbols: Sequence[int | float],
    ) -> TunedTiles | None:
        """The quickest of the kernel and its rivals; ``None`` where it cannot be tried, or fails, or time is over."""
        device = torch.device(self._loader.artifact.plan.device.kind)
        tried = benchmark_buffers(kernel, addresses, symbols, device)
        if tried is None:
            return None
        if self._sample is None:
            self._sample = self._sampler()
        places, memory = tried
        runs = []
        for each, launch in ((kernel, function), *rivals):
            call = partial(launch, places, symbols)
            try:
                call()
            except KernelError as error:
                log.debug("litz: %s fails with %s: %s", each.name, schedules_of(each), error)
                if each is kernel:
                    return None
                continue
            runs.append((schedules_of(each), call))
        found = self._quickest(runs)
        del memory
        return found if self._now() < self._end else None

    def _quickest(self, runs: Sequence[tuple[tuple[Schedule, ...], Callable[[], None]]]) -> TunedTiles:
        """The first of the runs, which is the rule's, unless another one is quicker by enough, twice."""
        own, start = runs[0]
        before, *others = self._medians([call for _, call in runs], ROUNDS)
        if others and min(others) <= GAIN * before:
            schedules, call = runs[1 + others.index(min(others))]
            before, after = self._medians([start, call], LAST_ROUNDS)
            if after <= GAIN * before:
                return TunedTiles(schedules, after, before, own)
        return TunedTiles(own, before, before, own)

    def _medians(self, calls: Sequence[Callable[[], None]], rounds: int) -> list[float]:
        """The calls' medians; they take turns, so that what the device does meanwhile meets them all."""
        assert self._sample is not None
        taken = [[self._sample(call) for call in calls]]
        while len(taken) < rounds and self._now() < self._end:
            taken.append([self._sample(call) for call in calls])
        return [statistics.median(each) for each in zip(*taken, strict=True)]
