"""The invariants of horizontally fused kernels: whole, independent subkernels that run on the fused kernel's
arguments.
"""

from __future__ import annotations

from litz_ir.plan.horizontal_fusion import conflicting_buffer, invocations_of
from litz_ir.plan.kernel import Invocation, Kernel
from litz_ir.plan.schedule import CpuLoops, Foreach, TileLoops, TileRequest, launched_cluster, scan_segment
from litz_ir.scalar.verify import ErrorLocation
from litz_ir.symbols.ranges import bounds
from litz_ir.symbols.table import SymbolInfo
from litz_ir.symbols.term import Size, Symbol, free_symbols, symbol


def check_horizontal_fusion(kernel: Kernel, location: ErrorLocation) -> None:
    """A horizontally fused kernel has subkernels and nothing else.

    Subkernels have no scratch and no workspace; every parameter is used; no invocation touches a buffer that
    another one writes.
    """
    if not kernel.subkernels:
        return
    if kernel.outer or kernel.scratch or kernel.phases:
        location.fail("subkernels", "it has axes, scratch or phases besides its subkernels")
    for subkernel in kernel.subkernels:
        own = subkernel.kernel
        if own.subkernels:
            location.fail("subkernels", f"the subkernel {own.name} has subkernels itself")
        if launched_cluster(own.schedule) != 1 or scan_segment(own.schedule) or own.scratch:
            location.fail("subkernels", f"thread blocks of {own.name} communicate, or it has scratch arrays")
    names = [subkernel.kernel.name for subkernel in kernel.subkernels]
    if len(set(names)) < len(names):
        location.fail("subkernels", f"two of its subkernels have one name: {', '.join(names)}")
    for own, invocation in invocations_of(kernel):
        _check_invocation(kernel, own, invocation, location)
    written = conflicting_buffer(kernel, [parameter.name for parameter in kernel.parameters])
    if written is not None:
        location.fail("independent", f"an invocation writes %{written}, and another one touches it")
    _check_parameters_used(kernel, location)
    _check_subkernels(kernel, location)


def _check_subkernels(kernel: Kernel, location: ErrorLocation) -> None:
    """A scheduled horizontally fused kernel has a :class:`Foreach` schedule, and its subkernels tile loops of
    as many warps.
    """
    own = kernel.schedule
    if own in (CpuLoops(), TileRequest()):
        return
    if not isinstance(own, Foreach):
        location.fail(
            "schedule", f"a horizontally fused kernel has a schedule of the form {type(own).__name__}"
        )
    for subkernel in kernel.subkernels:
        found = subkernel.kernel.schedule
        if not isinstance(found, TileLoops) or found.warps != own.warps:
            location.fail(
                "schedule", f"{subkernel.kernel.name} is not scheduled as tile loops of {own.warps} warps"
            )


def _check_invocation(kernel: Kernel, own: Kernel, invocation: Invocation, location: ErrorLocation) -> None:
    """An invocation gives each parameter and symbol of its subkernel a fitting argument.

    Buffers have the parameter's dtype and at least its alignment; values are terms over the fused kernel's
    symbols within the symbol's range.
    """
    if len(invocation.buffers) != len(own.parameters) or len(invocation.symbols) != len(own.symbols):
        location.fail("invocation", f"an invocation of {own.name} has the wrong number of arguments")
    known = {parameter.name: parameter for parameter in kernel.parameters}
    for parameter, name in zip(own.parameters, invocation.buffers, strict=True):
        given = known.get(name)
        if given is None:
            location.fail(
                "invocation", f"an invocation of {own.name} names %{name}, which is not a parameter"
            )
        if given.dtype != parameter.dtype or given.alignment % parameter.alignment:
            location.fail(
                "invocation", f"%{parameter.name} of {own.name} differs from %{name} in dtype or alignment"
            )
    infos = {info.name: info for info in kernel.symbols}
    sizes = {axis.size for axis in own.outer}
    for info, term in zip(own.symbols, invocation.symbols, strict=True):
        if not free_symbols(term) <= infos.keys():
            location.fail(
                "free-symbols", f"{info.name} of {own.name} is {term}, a symbol of which is unknown"
            )
        # A size is at least 0, even if the bounds of its term allow less.
        if not _may_be(info, term, infos, 0 if symbol(info.name) in sizes else None):
            location.fail(
                "invocation", f"{info.name} of {own.name} is {term}, which may lie outside its range"
            )


def _check_parameters_used(kernel: Kernel, location: ErrorLocation) -> None:
    """Every parameter is used by an invocation, and declared written if an invocation writes it."""
    accesses: dict[str, set[str]] = {}
    for own, invocation in invocations_of(kernel):
        for parameter, name in zip(own.parameters, invocation.buffers, strict=True):
            accesses.setdefault(name, set()).add(parameter.access)
    for parameter in kernel.parameters:
        if parameter.name not in accesses:
            location.fail("invocation", f"no invocation uses %{parameter.name}")
        if (parameter.access == "in") != (accesses[parameter.name] == {"in"}):
            location.fail(
                "access", f"%{parameter.name} is {parameter.access}, but its invocations use it otherwise"
            )


def _may_be(info: SymbolInfo, term: Size, infos: dict[str, SymbolInfo], least: int | None) -> bool:
    """True if a term is known to be a legal value of a symbol. ``least`` is a lower bound of the term that is
    known besides.
    """
    if info.kind != "int":
        return isinstance(term, Symbol) and infos[term.name].kind == info.kind
    if isinstance(term, Symbol) and infos[term.name].kind == "float":
        return False
    if isinstance(term, int) and term % info.divisor:
        return False
    given = bounds(term, {name: each.range for name, each in infos.items() if each.kind != "float"})
    low = max((each for each in (given.low, least) if each is not None), default=None)
    below = info.low is not None and (low is None or low < info.low)
    above = info.high is not None and (given.high is None or given.high > info.high)
    return not (below or above)
