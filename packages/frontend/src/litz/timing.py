"""Timing of calls: on a GPU between CUDA events or by the profiler, on the CPU by the host's clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils import _pytree as pytree

from litz.devices import GPU, functions_of, gpu, is_gpu, other_accelerator

Clock = Literal["events", "profiler", "host"]

Timer = Callable[[Callable[[], object]], float]
"""Function that makes a call and returns the time that it took, in seconds."""

WARM_CALLS, LEAST_CALLS = 3, 5
"""Calls before the first timed one, and fewest timed calls."""

_LEAST_FLUSHED = 64 << 20
"""Fewest bytes written to empty the L2 cache, so that the next launch is queued meanwhile."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of the calls of one function."""

    median: float
    """Median time of a call, in seconds."""

    low: float
    """10th percentile, in seconds."""

    high: float
    """90th percentile, in seconds."""

    calls: int
    """Number of timed calls."""

    clock: Clock
    """Clock that was used."""

    def rate(self, nbytes: int) -> float:
        """Return the bytes per second of a call that moves ``nbytes``."""
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
    """Time ``function(*args)``: a few calls to warm up, then calls for ``seconds`` seconds, at least five.

    ``clock`` is ``events`` (time between two events on the current stream), ``profiler`` (time of the kernels alone)
    or ``host`` (time until the CPU has the result). By default it is ``events`` where an argument is on a GPU, or
    where no argument is a tensor and this process uses a GPU, else ``host``. With ``flush`` the L2 cache of the GPU
    is emptied before each call, which also lets the host queue the call before the device is ready for it. Raises
    ``RuntimeError`` for a clock that this machine lacks.
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
    """Return a timer by the given clock; on a GPU it first waits for all queued work.

    Raises ``RuntimeError`` for a GPU clock without a GPU.
    """
    if clock == "host":
        other = other_accelerator()
        return _by_the_host if other is None else partial(_until_idle, functions_of(other).synchronize)
    if not gpu.is_available():
        raise RuntimeError(f"there is no NVIDIA GPU here, so nothing can be timed by {clock}")
    flushed = _Flush() if flush else _nothing
    by = _between_events if clock == "events" else _of_kernels

    def sample(call: Callable[[], object]) -> float:
        gpu.synchronize()
        return by(call, flushed)

    return sample


def clock_of(kind: str) -> Clock:
    """Return the clock for kernels on a kind of device: events where it runs them asynchronously."""
    return "events" if is_gpu(kind) else "host"


def _clock_for(args: Sequence[Any]) -> Clock:
    """Return the default clock for these arguments."""
    tensors = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    if not tensors:
        return "events" if gpu.is_available() and gpu.is_initialized() else "host"
    return "events" if any(is_gpu(each.device.type) for each in tensors) else "host"


def _nothing() -> None:
    """Leave caches unchanged."""


class _Flush:
    """Empties the L2 cache of the current GPU by writing four times its size, which gives the host time to queue
    work."""

    def __init__(self) -> None:
        cache = gpu.get_device_properties().L2_cache_size
        self._memory = torch.empty(max(4 * cache, _LEAST_FLUSHED), dtype=torch.int8, device=GPU)

    def __call__(self) -> None:
        self._memory.zero_()


def _by_the_host(call: Callable[[], object]) -> float:
    """Time a call by the host's clock."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _until_idle(wait: Callable[[], None], call: Callable[[], object]) -> float:
    """Time a call by the host's clock, until an accelerator that runs asynchronously has done its work."""
    wait()
    start = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - start


def _between_events(call: Callable[[], object], flush: Callable[[], None]) -> float:
    """Time a call between two events on the current stream."""
    first, last = (gpu.Event(enable_timing=True) for _ in range(2))
    flush()
    first.record()
    call()
    last.record()
    last.synchronize()
    milliseconds: float = first.elapsed_time(last)
    return milliseconds / 1e3


def _of_kernels(call: Callable[[], object], flush: Callable[[], None]) -> float:
    """Time the kernels of a call by the profiler."""
    flush()
    gpu.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        call()
        gpu.synchronize()
    return sum(_device_microseconds(profiled)) / 1e6


def _device_microseconds(profiled: profile) -> Iterator[float]:
    """Yield the time of each GPU activity, in microseconds."""
    for event in profiled.events() or ():
        if event.device_type.name == "CUDA" and not event.is_user_annotation:
            yield event.time_range.elapsed_us()
