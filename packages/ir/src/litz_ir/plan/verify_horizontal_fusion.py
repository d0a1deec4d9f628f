"""The invariants of packs: loops that are whole kernels, run on what the pack has, and are independent."""

from __future__ import annotations

from litz_ir.plan.horizontal_fusion import conflicting_buffer, invocations_of
from litz_ir.plan.kernel import Invocation, Kernel
from litz_ir.plan.schedule import CpuLoops, Foreach, TileLoops, TileRequest, cluster_size, scan_segment
from litz_ir.scalar.verify import ErrorLocation
from litz_ir.symbols.ranges import bounds
from litz_ir.symbols.table import SymbolInfo
from litz_ir.symbols.term import Size, Symbol, free_symbols, symbol


def check_horizontal_fusion(kernel: Kernel, place: ErrorLocation) -> None:
    """A pack has loops and nothing else, whose kernels share and keep nothing; every parameter is bound; what a loop
    writes no other one touches."""
    if not kernel.subkernels:
        return
    if kernel.outer or kernel.scratch or kernel.phases:
        place.fail("pack", "it has loops of its own beside those of its parts")
    for part in kernel.subkernels:
        own = part.kernel
        if own.subkernels:
            place.fail("pack", f"{own.name} is a pack itself")
        if cluster_size(own.schedule) != 1 or scan_segment(own.schedule) or own.scratch:
            place.fail("pack", f"the programs of {own.name} wait for one another, or keep arrays")
    names = [part.kernel.name for part in kernel.subkernels]
    if len(set(names)) < len(names):
        place.fail("pack", f"two of its parts have one name, of {', '.join(names)}")
    for own, binding in invocations_of(kernel):
        check_invocation(kernel, own, binding, place)
    written = conflicting_buffer(kernel, [parameter.name for parameter in kernel.parameters])
    if written is not None:
        place.fail("independent", f"a loop writes %{written}, and another one touches it")
    check_parameters_used(kernel, place)
    check_subkernels(kernel, place)


def check_subkernels(kernel: Kernel, place: ErrorLocation) -> None:
    """The schedules of a pack's parts suit its own: loops over tiles, of as many warps, once it is scheduled."""
    own = kernel.schedule
    if own in (CpuLoops(), TileRequest()):
        return
    if not isinstance(own, Foreach):
        place.fail("schedule", f"a pack has a schedule of the form {type(own).__name__}")
    for part in kernel.subkernels:
        found = part.kernel.schedule
        if not isinstance(found, TileLoops) or found.warps != own.warps:
            place.fail("schedule", f"{part.kernel.name} has no loops over tiles of {own.warps} warps")


def check_invocation(kernel: Kernel, own: Kernel, binding: Invocation, place: ErrorLocation) -> None:
    """A loop is bound to a parameter of the pack for each of its own, of the same dtype and not less aligned, and to
    values over the pack's symbols that its own may have."""
    if len(binding.buffers) != len(own.parameters) or len(binding.symbols) != len(own.symbols):
        place.fail("pack", f"a loop of {own.name} is given more or fewer values than that takes")
    known = {parameter.name: parameter for parameter in kernel.parameters}
    for parameter, name in zip(own.parameters, binding.buffers, strict=True):
        given = known.get(name)
        if given is None:
            place.fail("pack", f"a loop of {own.name} is bound to %{name}, which is no parameter")
        if given.dtype != parameter.dtype or given.alignment % parameter.alignment:
            place.fail("pack", f"%{parameter.name} of {own.name} is bound to %{name} of another kind")
    infos = {info.name: info for info in kernel.symbols}
    sizes = {axis.size for axis in own.outer}
    for info, term in zip(own.symbols, binding.symbols, strict=True):
        if not free_symbols(term) <= infos.keys():
            place.fail("free-symbols", f"{info.name} of {own.name} is {term}, which the pack does not know")
        # A size is 0 at the least, even where its term's bounds do not say so.
        if not _may_be(info, term, infos, 0 if symbol(info.name) in sizes else None):
            place.fail("pack", f"{info.name} of {own.name} is {term}, which it cannot be")


def check_parameters_used(kernel: Kernel, place: ErrorLocation) -> None:
    """Every parameter is bound by a loop, and written where one of its loops writes it."""
    seen: dict[str, set[str]] = {}
    for own, binding in invocations_of(kernel):
        for parameter, name in zip(own.parameters, binding.buffers, strict=True):
            seen.setdefault(name, set()).add(parameter.access)
    for parameter in kernel.parameters:
        if parameter.name not in seen:
            place.fail("pack", f"no loop is bound to %{parameter.name}")
        if (parameter.access == "in") != (seen[parameter.name] == {"in"}):
            place.fail("access", f"%{parameter.name} is {parameter.access}, unlike what its loops do with it")


def _may_be(info: SymbolInfo, term: Size, infos: dict[str, SymbolInfo], least: int | None) -> bool:
    """False for a value that is not known to be one of a symbol's, or of another kind. It is at ``least`` so much."""
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
