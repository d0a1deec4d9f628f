"""Packs: kernels whose loops have nothing to do with one another, so that one launch runs them side by side.

A loop of a pack is a kernel on some of the pack's parameters and with values over the pack's symbols, as a launch is
one on buffers of a plan. Loops that are alike are one part: their code is there once. What a loop writes no other loop
touches, so that nobody can tell in which order they run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from litz_ir.plan.kernel import Invocation, Kernel, KernelOrigin, Subkernel
from litz_ir.plan.schedule import Schedule
from litz_ir.symbols.term import Size, Symbol, evaluate

SymbolValue = int | float
"""The value of a symbol."""


def leaf_kernels(kernel: Kernel) -> tuple[Kernel, ...]:
    """The kernels that have axes and phases of their own: those of a pack's parts, or the kernel itself."""
    return tuple(part.kernel for part in kernel.subkernels) or (kernel,)


def invocations_of(kernel: Kernel) -> tuple[tuple[Kernel, Invocation], ...]:
    """The loops of a pack, each with what it runs on, in their order."""
    return tuple((part.kernel, binding) for part in kernel.subkernels for binding in part.invocations)


def schedules_of(kernel: Kernel) -> tuple[Schedule, ...]:
    """The schedule of a kernel, and after it those of a pack's parts."""
    return (kernel.schedule, *(part.kernel.schedule for part in kernel.subkernels))


def with_schedules(kernel: Kernel, schedules: Sequence[Schedule]) -> Kernel:
    """The kernel with other schedules, as many as :func:`schedules_of` gives."""
    own, *others = schedules
    pairs = zip(kernel.subkernels, others, strict=True)
    parts = tuple(replace(part, kernel=replace(part.kernel, schedule=each)) for part, each in pairs)
    return replace(kernel, schedule=own, subkernels=parts)


def split_subkernels(kernel: Kernel) -> tuple[Kernel, ...]:
    """A pack for each part of a pack, with what its loops are bound to."""

    def pack(part: Subkernel) -> Kernel:
        bound = {name for binding in part.invocations for name in binding.buffers}
        parameters = tuple(each for each in kernel.parameters if each.name in bound)
        name = f"{kernel.name}_{part.kernel.name}"
        return replace(kernel, name=name, parameters=parameters, subkernels=(part,))

    return tuple(map(pack, kernel.subkernels))


def origins_by_subkernel(
    kernel: Kernel, origins: Sequence[KernelOrigin]
) -> tuple[tuple[KernelOrigin, ...], ...]:
    """Where the loops of each part of a pack came from; a kernel that is none has no parts."""
    ends = list(accumulate(len(part.invocations) for part in kernel.subkernels))
    found: list[list[KernelOrigin]] = [[] for _ in ends]
    for each in origins if kernel.subkernels else ():
        found[bisect_right(ends, each.invocation)].append(each)
    return tuple(map(tuple, found))


def invocation_symbols(
    kernel: Kernel, binding: Invocation, symbols: Mapping[str, SymbolValue]
) -> dict[str, SymbolValue]:
    """The values of the symbols of a loop of a pack, whose own are ``symbols``."""
    integers = {name: int(value) for name, value in symbols.items() if not isinstance(value, float)}

    def value(term: Size) -> SymbolValue:
        return symbols[term.name] if isinstance(term, Symbol) else evaluate(term, integers)

    return {info.name: value(term) for info, term in zip(kernel.symbols, binding.symbols, strict=True)}


def invocations_by_buffer(kernel: Kernel, names: Iterable[str]) -> dict[str, frozenset[int]]:
    """The loops of a pack, by number, that touch each of ``names``: those of the memory that its parameters are bound
    to, one for each parameter."""
    memory = dict(zip((parameter.name for parameter in kernel.parameters), names, strict=True))
    found: dict[str, set[int]] = {}
    for number, (_, binding) in enumerate(invocations_of(kernel)):
        for buffer in binding.buffers:
            found.setdefault(memory[buffer], set()).add(number)
    return {name: frozenset(numbers) for name, numbers in found.items()}


def conflicting_buffer(kernel: Kernel, names: Iterable[str]) -> str | None:
    """The first memory of ``names``, as :func:`touching` has them, that a loop writes and another one touches."""
    given = tuple(names)
    loops = invocations_by_buffer(kernel, given)
    written = (n for p, n in zip(kernel.parameters, given, strict=True) if p.access != "in")
    return next((name for name in written if len(loops.get(name, ())) > 1), None)
