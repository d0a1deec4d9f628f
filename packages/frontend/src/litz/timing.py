"""How long a call takes: on a GPU between events or as the profiler saw it, on the CPU by the clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils import _pytree as pytree

Clock = Literal["events", "profiler", "host"]

Timer = Callable[[Callable[[], object]], float]
"""Makes a call and gives the seconds that it took."""

WARM_CALLS, LEAST_CALLS = 3, 5

LEAST_FLUSHED = 64 << 20
"""Bytes that are written to empty a cache, however small: what comes next is queued meanwhile."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a call: the median of ``calls``, and between which most lay (the 10th and the 90th percentile), by
    ``clock``."""

    median: float
    low: float
    high: float
    calls: int
    clock: Clock

    def rate(self, nbytes: int) -> float:
        """Bytes per second, where a call moves so many."""
        return nbytes / self.median

    def __str__(self) -> str:
        micro = " to ".join(f"{1e6 * seconds:.1f}" for seconds in (self.low, self.high))
        return f"{1e6 * self.median:.1f} us ({micro}, {self.calls} calls by {self.clock})"


def bench(
    function: Callable[..., object],
    *args: Any,
    clock: Clock | None = None,
    seconds: float = 0.2,
    flush: bool = True,
) -> Timing:
    """Time ``function(*args)``: some calls to warm up, then calls for so many ``seconds``, and a few at least.

    ``clock`` is ``events`` (the time between two events on the current stream), ``profiler`` (that of the kernels
    alone) or ``host`` (until the CPU has it); by default ``events`` where an argument is on a GPU, or where there are
    no tensors among them and this process uses one, else ``host``. With ``flush`` the GPU's cache is emptied before
    each call, so that a call finds nothing there, and the host is ahead of the device. Raises ``RuntimeError`` for a
    clock that this machine lacks.
    """
    chosen = clock or _clock_for(args)
    sample = sampler(chosen, flush=flush)

    def call() -> object:
        return function(*args)

    for _ in range(WARM_CALLS):
        call()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < LEAST_CALLS or time.perf_counter() < end:
        samples.append(sample(call))
    tenths = statistics.quantiles(samples, n=10, method="inclusive")
    return Timing(statistics.median(samples), tenths[0], tenths[-1], len(samples), chosen)


def sampler(clock: Clock, *, flush: bool = True) -> Timer:
    """What times one call by a clock. On a GPU it waits for all that was queued there. Raises ``RuntimeError`` without
    a GPU."""
    if clock == "host":
        return _by_the_host
    if not torch.cuda.is_available():
        raise RuntimeError(f"there is no NVIDIA GPU here, so nothing can be timed by {clock}")
    flushed = _Flush() if flush else _nothing
    by = _between_events if clock == "events" else _of_kernels

    def sample(call: Callable[[], object]) -> float:
        torch.cuda.synchronize()
        return by(call, flushed)

    return sample


def _clock_for(args: Sequence[Any]) -> Clock:
    tensors = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    if not tensors:
        return "events" if torch.cuda.is_available() and torch.cuda.is_initialized() else "host"
    return "events" if any(each.is_cuda for each in tensors) else "host"


def _nothing() -> None:
    """Leave caches as they are."""


class _Flush:
    """Writes four times what the current GPU's cache holds: long enough for the host to queue what follows."""

    def __init__(self) -> None:
        cache = torch.cuda.get_device_properties().L2_cache_size
        self._memory = torch.empty(max(4 * cache, LEAST_FLUSHED), dtype=torch.int8, device="cuda")

    def __call__(self) -> None:
        self._memory.zero_()


def _by_the_host(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _between_events(call: Callable[[], object], flush: Callable[[], None]) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flush()
    first.record()
    call()
    last.record()
    last.synchronize()
    milliseconds: float = first.elapsed_time(last)
    return milliseconds / 1e3


def _of_kernels(call: Callable[[], object], flush: Callable[[], None]) -> float:
    flush()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        call()
        torch.cuda.synchronize()
    return sum(_device_microseconds(profiled)) / 1e6


def _device_microseconds(profiled: profile) -> Iterator[float]:
    for event in profiled.events() or ():
        if event.device_type.name == "CUDA" and not event.is_user_annotation:
            yield event.time_range.elapsed_us()
