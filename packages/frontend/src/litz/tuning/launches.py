"""The launches of a plan, with their typical sizes and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from litz_ir.device import Device
from litz_ir.plan import AccessRange, Kernel, Launch, Plan, access_ranges, kernels_in, launched_on, plans_in


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """A launch of a plan."""

    launch: Launch
    """The step of the plan."""

    kernel: Kernel
    """Its kernel."""

    values: tuple[int | float, ...]
    """Values of the kernel's symbols at typical sizes, which are the hints of the plan's symbols."""

    nbytes: int
    """Bytes that it reads and writes of its buffers at these sizes, each element counted once."""

    device: Device
    """Its device."""

    plan: Plan
    """The plan, or subplan, that it is a step of."""

    position: int
    """Its position among the steps of that plan."""


def planned_launches(plan: Plan) -> Iterator[PlannedLaunch]:
    """Yield every launch of a plan and of its subplans, in order; a float symbol counts as 1.0."""
    kernels = {kernel.name: kernel for kernel in kernels_in(plan)}
    touched: dict[tuple[str, tuple[int | float, ...]], Mapping[str, AccessRange]] = {}
    for owner in plans_in(plan):
        placements = dict(owner.buffers)
        for position, step in enumerate(owner.steps):
            if not isinstance(step, Launch):
                continue
            kernel = kernels[step.kernel]
            pairs = zip(kernel.symbols, step.symbols, strict=True)
            values = tuple(1.0 if info.kind == "float" else owner.symbols.hint(term) for info, term in pairs)
            key = (kernel.name, values)
            if key not in touched:
                touched[key] = access_ranges(kernel, symbols_of(kernel, values))
            total = 0
            for parameter, name in zip(kernel.parameters, step.buffers, strict=True):
                # The ranges of masked loads may be larger than the buffer.
                found, most = touched[key][parameter.name], owner.symbols.hint(placements[name].nbytes)
                total += min(found.read, most) + min(found.written, most)
            device = launched_on(step, placements)
            yield PlannedLaunch(step, kernel, values, total, device, owner, position)


def size_key(kernel: Kernel, values: Sequence[int | float]) -> tuple[int, ...]:
    """Return the values of a kernel's symbols without floats: they determine the work of a launch."""
    return tuple(
        int(value) for info, value in zip(kernel.symbols, values, strict=True) if info.kind != "float"
    )


def symbols_of(kernel: Kernel, values: Sequence[int | float]) -> dict[str, int | float]:
    """Return a kernel's symbols by name, from their values in order."""
    return {info.name: value for info, value in zip(kernel.symbols, values, strict=True)}
