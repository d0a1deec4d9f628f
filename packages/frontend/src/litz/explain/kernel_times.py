"""Times of the kernels of a call, each launched alone on the call's own inputs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial

import torch

from litz.timing import Timer, clock_of, sampler
from litz.tuning.benchmark_launch import benchmark_buffers, can_benchmark
from litz.tuning.launches import size_key
from litz_ir.errors import KernelError
from litz_ir.plan import Plan, kernel_devices, kernels_in
from litz_ir.target import LaunchFunction

_SAMPLES = 7
"""Timed launches of a kernel."""


class LaunchTimes:
    """Observer of a plan's launches that times each kernel once per sizes.

    A timed launch reads the call's own inputs and writes to copies. Kernels that cannot be launched that way, or for
    whose copies memory is short, have no time.
    """

    def __init__(self, plan: Plan, clock: Callable[[], Timer] | None = None) -> None:
        self.seconds: dict[tuple[str, tuple[int, ...]], float] = {}
        """Median time, in seconds, by kernel and sizes (:func:`litz.tuning.launches.size_key`)."""
        self._kernels = {kernel.name: kernel for kernel in kernels_in(plan) if can_benchmark(kernel)}
        self._kinds = {name: devices[0].kind for name, devices in kernel_devices(plan).items() if devices}
        self._clock = clock

    def watch(
        self, name: str, function: LaunchFunction, addresses: Sequence[int], symbols: Sequence[int | float]
    ) -> None:
        """Time a launch just before the call makes it, unless one of the same kernel and sizes was timed."""
        kernel = self._kernels.get(name)
        if kernel is None or (name, size_key(kernel, symbols)) in self.seconds:
            return
        try:
            kind = self._kinds[name]
            allocated = benchmark_buffers(kernel, addresses, symbols, torch.device(kind))
            if allocated is None:
                return
            buffers, memory = allocated
            call, sample = partial(function, buffers, symbols), self._sample(kind)
            call()
            median = statistics.median(sample(call) for _ in range(_SAMPLES))
            del memory
        except (KernelError, torch.OutOfMemoryError):
            return  # a kernel that fails here fails in the call itself too
        self.seconds[name, size_key(kernel, symbols)] = median

    def _sample(self, kind: str) -> Timer:
        """Return the timer for a kind of device."""
        return self._clock() if self._clock is not None else sampler(clock_of(kind))
