"""The launches of a plan, with what each is likely given and has to move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from litz_ir.device import Device
from litz_ir.loops import span
from litz_ir.plan import AccessRange, Kernel, Launch, Plan, access_ranges, kernels_in, launched_on, plans_in
from litz_ir.symbols import mul


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """A launch of ``kernel`` on a ``device``: ``values`` are those of its symbols where the plan's are what is typical,
    ``nbytes`` what it reads and writes of its buffers then, each element counted once."""

    launch: Launch
    kernel: Kernel
    values: tuple[int | float, ...]
    nbytes: int
    device: Device


def planned_launches(plan: Plan) -> Iterator[PlannedLaunch]:
    """Every launch of a plan and of its subplans, in order. A symbol that is a float counts as 1.0."""
    kernels = {kernel.name: kernel for kernel in kernels_in(plan)}
    touched: dict[tuple[str, tuple[int | float, ...]], Mapping[str, AccessRange]] = {}
    for owner in plans_in(plan):
        placements = dict(owner.buffers)
        for step in owner.steps:
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
                # What is read under a condition may count for more than there is.
                type_, found = placements[name].type, touched[key][parameter.name]
                most = owner.symbols.hint(mul(span(type_.shape, type_.layout), type_.dtype.itemsize))
                total += min(found.read, most) + min(found.written, most)
            yield PlannedLaunch(step, kernel, values, total, launched_on(step, placements))


def size_key(kernel: Kernel, values: Sequence[int | float]) -> tuple[int, ...]:
    """What decides how much a launch does: the values of a kernel's symbols, those left out that are floats."""
    return tuple(
        int(value) for info, value in zip(kernel.symbols, values, strict=True) if info.kind != "float"
    )


def symbols_of(kernel: Kernel, values: Sequence[int | float]) -> dict[str, int | float]:
    """A kernel's symbols by name, from their values in order."""
    return {info.name: value for info, value in zip(kernel.symbols, values, strict=True)}
