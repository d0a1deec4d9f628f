"""Limits of this machine, measured once per process: bytes copied and floating-point operations per second."""

from __future__ import annotations

import functools
import statistics
from dataclasses import dataclass

import torch

from litz.devices import is_gpu
from litz.timing import clock_of, sampler

_COPIED, _COPIED_ON_GPU = 64 << 20, 512 << 20
"""Bytes of the tensor that is copied: more than caches hold."""

_ROWS, _ROWS_ON_GPU = 1024, 4096
"""Rows and columns of the matrices that are multiplied."""

_SAMPLES = 5
"""Timed calls of each."""


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Rates that a device reached here, which bound those of kernels. Data in caches may move faster."""

    device: str
    """Kind of the device, such as ``cpu`` or ``cuda``."""

    bytes_per_second: float
    """Bytes read and written per second by a copy of a tensor that no cache holds."""

    flops_per_second: float
    """Floating-point operations per second of an f32 matmul of the library, by torch's present settings."""

    def seconds(self, nbytes: int, flops: int) -> float:
        """Return the least time for this work, in seconds."""
        return max(nbytes / self.bytes_per_second, flops / self.flops_per_second)


@functools.cache
def machine_limits(kind: str) -> MachineLimits:
    """Measure the limits of a kind of device, which takes a fraction of a second, once per process."""
    sample = sampler(clock_of(kind))
    nbytes, rows = (_COPIED_ON_GPU, _ROWS_ON_GPU) if is_gpu(kind) else (_COPIED, _ROWS)
    source = torch.ones(nbytes // 4, device=kind)
    target = torch.empty_like(source)
    square = torch.ones(rows, rows, device=kind)
    copied, multiplied = (
        _fastest([sample(call) for _ in range(_SAMPLES)])
        for call in (lambda: target.copy_(source), lambda: torch.mm(square, square))
    )
    return MachineLimits(kind, 2 * source.nbytes / copied, 2 * rows**3 / multiplied)


def _fastest(seconds: list[float]) -> float:
    """Return the median of the faster half of some times: a limit is what the machine reaches undisturbed."""
    return statistics.median(sorted(seconds)[: len(seconds) // 2 + 1])
