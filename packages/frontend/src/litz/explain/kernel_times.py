"""How long the kernels of a call take, each timed alone on what the call gives it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial

import torch

from litz.timing import Timer, sampler
from litz.tuning.benchmark_launch import benchmark_buffers, can_benchmark
from litz.tuning.launches import size_key
from litz_ir.errors import KernelError
from litz_ir.plan import Plan, kernel_devices, kernels_in
from litz_ir.target import LaunchFunction

SAMPLES = 7


class LaunchTimes:
    """Watches a call of a plan. ``seconds`` holds, by kernel and sizes (:func:`litz.tuning.launches.size_key`), the
    median
    of some launches: they read what the call's own reads, and write elsewhere. What cannot be tried that way, or has no
    memory for it, is left out."""

    def __init__(self, plan: Plan, clock: Callable[[], Timer] | None = None) -> None:
        self.seconds: dict[tuple[str, tuple[int, ...]], float] = {}
        self._kernels = {kernel.name: kernel for kernel in kernels_in(plan) if can_benchmark(kernel)}
        self._kinds = {name: devices[0].kind for name, devices in kernel_devices(plan).items() if devices}
        self._clock = clock

    def watch(
        self, name: str, function: LaunchFunction, addresses: Sequence[int], symbols: Sequence[int | float]
    ) -> None:
        """Time a launch that is about to be made, unless one like it was."""
        kernel = self._kernels.get(name)
        if kernel is None or (name, size_key(kernel, symbols)) in self.seconds:
            return
        try:
            kind = self._kinds[name]
            tried = benchmark_buffers(kernel, addresses, symbols, torch.device(kind))
            if tried is None:
                return
            places, memory = tried
            call, sample = partial(function, places, symbols), self._sample(kind)
            call()
            taken = statistics.median(sample(call) for _ in range(SAMPLES))
            del memory
        except (KernelError, torch.OutOfMemoryError):
            return  # where the kernel fails, the call itself is about to say so
        self.seconds[name, size_key(kernel, symbols)] = taken

    def _sample(self, kind: str) -> Timer:
        return self._clock() if self._clock is not None else sampler("events" if kind == "cuda" else "host")
