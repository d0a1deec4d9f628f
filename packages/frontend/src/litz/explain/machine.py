"""Limits of this machine, measured once per process: bytes copied and floating-point operations per second."""

from __future__ import annotations

import functools
import statistics
from dataclasses import dataclass

import torch

from litz.devices import KINDS
from litz.timing import clock_of, sampler

_COPIED = dict(zip(KINDS, (64 << 20, 512 << 20), strict=True))
"""Bytes of the tensor that is copied, by kind of device: more than its caches hold."""

_ROWS = dict(zip(KINDS, (1024, 4096), strict=True))
"""Rows and columns of the matrices that are multiplied, by kind of device."""

_SAMPLES = 5
"""Timed calls of each."""


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Rates that a device reached here, which bound those of kernels. Data in caches may move faster."""

    device: str
    """Kind of the device: ``cpu`` or ``cuda``."""

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
    source = torch.ones(_COPIED[kind] // 4, device=kind)
    target = torch.empty_like(source)
    square = torch.ones(_ROWS[kind], _ROWS[kind], device=kind)
    copied, multiplied = (
        _fastest([sample(call) for _ in range(_SAMPLES)])
        for call in (lambda: target.copy_(source), lambda: torch.mm(square, square))
    )
    return MachineLimits(kind, 2 * source.nbytes / copied, 2 * _ROWS[kind] ** 3 / multiplied)


def _fastest(seconds: list[float]) -> float:
    """Return the median of the faster half of some times: a limit is what the machine reaches undisturbed."""
    return statistics.median(sorted(seconds)[: len(seconds) // 2 + 1])
