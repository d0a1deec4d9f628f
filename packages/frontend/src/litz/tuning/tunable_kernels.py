"""Which kernels of a plan are worth tuning, and what their choices are kept by."""

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
"""What memory must take to move what a kernel moves: the device takes as long to launch one that moves less, however it
is cut."""


@dataclass(frozen=True, slots=True)
class TunableKernel:
    """A kernel to be tuned at sizes of these ``classes``; its choice is kept by ``key``. A call spends about so many
    ``seconds`` in it."""

    kernel: Kernel
    key: str
    classes: tuple[int, ...]
    seconds: float

    def fits(self, symbols: Sequence[int | float]) -> bool:
        """True for a launch whose sizes are of the same classes."""
        return size_classes(self.kernel, symbols) == self.classes


def tunable_kernels(plan: Plan, target: Target, least: float = LEAST_SECONDS) -> tuple[TunableKernel, ...]:
    """The kernels that a ``target`` makes of a plan and of its subplans, those that memory needs ``least`` seconds for,
    a pack for all its loops, and that can be tried; those that take most of a call come first. Sizes that are not fixed
    are taken at their hints."""
    found: dict[str, TunableKernel] = {}
    for site in planned_launches(plan):
        if site.device.kind != target.capabilities().device.kind:
            continue
        kernel, seconds = site.kernel, target.seconds(site.nbytes, 0, 0)
        known = found.get(kernel.name)
        if known is not None:
            found[kernel.name] = replace(known, seconds=known.seconds + seconds)
        elif seconds >= least and can_benchmark(kernel):
            classes = size_classes(kernel, site.values)
            found[kernel.name] = TunableKernel(kernel, _key(kernel, target, classes), classes, seconds)
    return tuple(sorted(found.values(), key=lambda each: -each.seconds))


def size_classes(kernel: Kernel, symbols: Sequence[int | float]) -> tuple[int, ...]:
    """The power of two that each size is rounded up to, as an exponent."""
    return tuple((max(1, size) - 1).bit_length() for size in size_key(kernel, symbols))


def _key(kernel: Kernel, target: Target, classes: Sequence[int]) -> str:
    """The digest of a kernel without its name, of the device and of the sizes' classes."""
    device = f"{target.name} {target.capabilities().name}"
    facts = *versions(), *target_identity(target).facts, device
    return text_key("tiles", *facts, digest(replace(kernel, name="")), repr(tuple(classes)))
