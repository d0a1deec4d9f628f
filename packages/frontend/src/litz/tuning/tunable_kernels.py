"""Kernels of a plan that are worth tuning, and their cache keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from litz.cache.key import target_identity, text_key, versions
from litz.tuning.benchmark_launch import can_benchmark
from litz.tuning.launches import planned_launches, size_key
from litz_ir.plan import Kernel, Plan
from litz_ir.serial import digest
from litz_ir.target import Target

LEAST_SECONDS = 5e-6
"""Least memory time of a kernel worth tuning, in seconds: with less, the launch overhead hides every difference."""


@dataclass(frozen=True, slots=True)
class TunableKernel:
    """A kernel to tune at sizes of some classes."""

    kernel: Kernel
    """The kernel, with its default schedule."""

    key: str
    """Cache key of its choice."""

    classes: tuple[int, ...]
    """Size classes of its symbols; see :func:`_size_classes`."""

    seconds: float
    """Modelled time that a call of the graph spends in it, in seconds."""

    def fits(self, symbols: Sequence[int | float]) -> bool:
        """Report whether a launch has sizes of these classes."""
        return _size_classes(self.kernel, symbols) == self.classes


def tunable_kernels(plan: Plan, target: Target, least: float = LEAST_SECONDS) -> tuple[TunableKernel, ...]:
    """Return the kernels of a plan and its subplans that are worth tuning, the slowest first.

    They run on the ``target``, take ``least`` seconds or more by their bytes (a horizontally fused kernel all its
    loops counted), and can be benchmarked. Dynamic sizes are taken at their hints.
    """
    found: dict[str, TunableKernel] = {}
    for planned in planned_launches(plan):
        if planned.device.kind != target.capabilities().device.kind:
            continue
        kernel, seconds = planned.kernel, target.seconds(planned.nbytes, 0, 0)
        known = found.get(kernel.name)
        if known is not None:
            found[kernel.name] = replace(known, seconds=known.seconds + seconds)
        elif seconds >= least and can_benchmark(kernel):
            classes = _size_classes(kernel, planned.values)
            found[kernel.name] = TunableKernel(kernel, _key(kernel, target, classes), classes, seconds)
    return tuple(sorted(found.values(), key=lambda each: -each.seconds))


def _size_classes(kernel: Kernel, symbols: Sequence[int | float]) -> tuple[int, ...]:
    """Return, for each size, the exponent of the power of two that it is rounded up to."""
    return tuple((max(1, size) - 1).bit_length() for size in size_key(kernel, symbols))


def _key(kernel: Kernel, target: Target, classes: Sequence[int]) -> str:
    """Return the digest of a kernel without its name, of the device and of the size classes."""
    device = f"{target.name} {target.capabilities().name}"
    facts = *versions(), *target_identity(target).facts, device
    return text_key("tiles", *facts, digest(replace(kernel, name="")), repr(tuple(classes)))
