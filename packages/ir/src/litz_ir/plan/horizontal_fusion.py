"""Horizontally fused kernels: independent subkernels that run in one launch.

An invocation runs a subkernel on some of the fused kernel's parameters and with values over its symbols, as a
launch runs a kernel on buffers of a plan. Equal kernels are one subkernel with several invocations, so their
code is emitted once. No invocation touches memory that another one writes, so the order in which they run has
no effect.
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
    """The kernels that have axes and phases: the subkernels of a horizontally fused kernel, or the kernel itself."""
    return tuple(subkernel.kernel for subkernel in kernel.subkernels) or (kernel,)


def invocations_of(kernel: Kernel) -> tuple[tuple[Kernel, Invocation], ...]:
    """The invocations of a horizontally fused kernel in order, each with its subkernel."""
    return tuple(
        (subkernel.kernel, invocation)
        for subkernel in kernel.subkernels
        for invocation in subkernel.invocations
    )


def schedules_of(kernel: Kernel) -> tuple[Schedule, ...]:
    """The schedule of a kernel, followed by those of its subkernels."""
    return (kernel.schedule, *(subkernel.kernel.schedule for subkernel in kernel.subkernels))


def with_schedules(kernel: Kernel, schedules: Sequence[Schedule]) -> Kernel:
    """The kernel with other schedules, in the order of :func:`schedules_of`."""
    own, *others = schedules
    pairs = zip(kernel.subkernels, others, strict=True)
    subkernels = tuple(
        replace(subkernel, kernel=replace(subkernel.kernel, schedule=each)) for subkernel, each in pairs
    )
    return replace(kernel, schedule=own, subkernels=subkernels)


def split_subkernels(kernel: Kernel) -> tuple[Kernel, ...]:
    """Divide a horizontally fused kernel into one for each subkernel, each with all of that subkernel's
    invocations.
    """

    def fused_kernel(subkernel: Subkernel) -> Kernel:
        used = {name for invocation in subkernel.invocations for name in invocation.buffers}
        parameters = tuple(each for each in kernel.parameters if each.name in used)
        name = f"{kernel.name}_{subkernel.kernel.name}"
        return replace(kernel, name=name, parameters=parameters, subkernels=(subkernel,))

    return tuple(map(fused_kernel, kernel.subkernels))


def origins_by_subkernel(
    kernel: Kernel, origins: Sequence[KernelOrigin]
) -> tuple[tuple[KernelOrigin, ...], ...]:
    """Origins of a horizontally fused kernel, by subkernel; empty for other kernels."""
    ends = list(accumulate(len(subkernel.invocations) for subkernel in kernel.subkernels))
    found: list[list[KernelOrigin]] = [[] for _ in ends]
    for each in origins if kernel.subkernels else ():
        found[bisect_right(ends, each.invocation)].append(each)
    return tuple(map(tuple, found))


def invocation_symbols(
    kernel: Kernel, invocation: Invocation, symbols: Mapping[str, SymbolValue]
) -> dict[str, SymbolValue]:
    """Values of a subkernel's symbols in one invocation, given the values of the fused kernel's symbols."""
    integers = {name: int(value) for name, value in symbols.items() if not isinstance(value, float)}

    def value(term: Size) -> SymbolValue:
        return symbols[term.name] if isinstance(term, Symbol) else evaluate(term, integers)

    return {info.name: value(term) for info, term in zip(kernel.symbols, invocation.symbols, strict=True)}


def invocations_by_buffer(kernel: Kernel, names: Iterable[str]) -> dict[str, frozenset[int]]:
    """Numbers of the invocations that touch each memory.

    ``names`` gives the memory of each parameter of the horizontally fused kernel, in order.
    """
    memory = dict(zip((parameter.name for parameter in kernel.parameters), names, strict=True))
    found: dict[str, set[int]] = {}
    for number, (_, invocation) in enumerate(invocations_of(kernel)):
        for buffer in invocation.buffers:
            found.setdefault(memory[buffer], set()).add(number)
    return {name: frozenset(numbers) for name, numbers in found.items()}


def conflicting_buffer(kernel: Kernel, names: Iterable[str]) -> str | None:
    """The first memory that one invocation writes and another one touches, or ``None``.

    ``names`` is that of :func:`invocations_by_buffer`.
    """
    given = tuple(names)
    loops = invocations_by_buffer(kernel, given)
    written = (n for p, n in zip(kernel.parameters, given, strict=True) if p.access != "in")
    return next((name for name in written if len(loops.get(name, ())) > 1), None)
