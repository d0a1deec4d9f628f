"""Loops that are alike: kernels that differ in the sizes of their outer axes, and in what their symbols are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Invocation, Kernel, Phase, ScanStore, Statement, Store, Subkernel
from litz_ir.scalar import Expr, Scalar, map_indirects, substitute_expr, transform
from litz_ir.symbols import (
    Product,
    Size,
    Sum,
    Symbol,
    SymbolInfo,
    SymbolTable,
    bounds,
    free_symbols,
    substitute,
    symbol,
)
from litz_scheduler.loop_order import bodies_of, nodes_of, stores_of, terms_of

MAX_DIVISOR, MIN_DIVISOR = 16, 4
"""Sizes that have other powers of two as divisors are not alike, from the least to the greatest number of elements that
are read together: one size that is odd would have all others read element by element."""

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KernelTemplate:
    """What alike kernels have in common: ``kernel`` has no name and symbols of its own, of which little is said.
    ``facts`` say what is known of them here, ``values`` what they are, over the symbols of the kernel at hand."""

    kernel: Kernel
    facts: tuple[SymbolInfo, ...]
    values: tuple[Size, ...]

    def at(self, symbols: Mapping[str, Size]) -> KernelTemplate:
        """The same where the symbols of the kernel at hand have values in turn."""
        return replace(self, values=tuple(substitute(value, symbols) for value in self.values))


def kernel_template(kernel: Kernel) -> KernelTemplate:
    """A kernel's outline: ``n0``, ``n1``, … for the sizes of its outer axes, ``v0``, … for the symbols that it has
    otherwise."""
    used = _used(kernel)
    kept = [info for info in kernel.symbols if info.name in used]
    names = {info.name: f"v{k}" for k, info in enumerate(kept)}
    facts = [replace(info, name=names[info.name]) for info in kept]
    values: list[Size] = [symbol(info.name) for info in kept]
    outer = []
    for k, axis in enumerate(kernel.outer):
        if axis.size not in (0, 1):
            facts.append(_fact(f"n{k}", axis.size, kernel.symbols))
            values.append(axis.size)
            axis = Axis(axis.name, symbol(f"n{k}"))
        outer.append(axis)
    general = replace(
        kernel, name="", outer=tuple(outer), symbols=tuple(map(_coarse, facts)),
        phases=_renamed(kernel.phases, names) if names else kernel.phases,
    )  # fmt: skip
    return KernelTemplate(general, tuple(facts), tuple(values))


def subkernel_of(name: str, loops: Sequence[tuple[KernelTemplate, tuple[str, ...]]]) -> Subkernel:
    """The part of a pack that runs alike loops on these buffers. What is the same number for all of them stands in its
    kernel; of the other symbols that knows what holds for every loop."""
    outlines = [each for each, _ in loops]
    general = outlines[0].kernel
    fixed: dict[str, Size] = {}
    infos: list[SymbolInfo] = []
    for k, info in enumerate(general.symbols):
        given = {each.values[k] for each in outlines}
        (first, *others) = given
        if isinstance(first, int) and not others:
            fixed[info.name] = first
        else:
            infos.append(_common([each.facts[k] for each in outlines]))
    outer = tuple(Axis(axis.name, substitute(axis.size, fixed)) for axis in general.outer)
    kernel = replace(general, name=name, symbols=tuple(infos), outer=outer)
    open_ = [k for k, info in enumerate(general.symbols) if info.name not in fixed]
    bindings = (Invocation(buffers, tuple(each.values[k] for k in open_)) for each, buffers in loops)
    return Subkernel(kernel, tuple(bindings))


def _used(kernel: Kernel) -> set[str]:
    """The names that phases use."""
    names: set[str] = set()
    for phase in kernel.phases:
        names.update(*(free_symbols(axis.size) for axis in phase.axes))
        names.update(*map(free_symbols, terms_of(phase.statements)))
        names.update(*(body.free_symbols for each in phase.statements for body in bodies_of(each)))
        names.update(node.name for node in nodes_of(phase.statements) if isinstance(node, Scalar))
    return names


def _fact(name: str, size: Size, symbols: Sequence[SymbolInfo]) -> SymbolInfo:
    """What is known of a size."""
    found = bounds(size, {info.name: info.range for info in symbols if info.kind != "float"})
    divisor = _divisor(size, {info.name: info.divisor for info in symbols})
    low = None if found.low is None else max(0, found.low)
    return SymbolInfo(
        name, low=low, high=found.high, divisor=divisor, hint=SymbolTable(tuple(symbols)).hint(size)
    )


def _divisor(size: Size, known: Mapping[str, int]) -> int:
    """A number that divides a size, which is not 0."""
    match size:
        case int():
            return abs(size)
        case Symbol():
            return known[size.name]
        case Product():
            return prod(_divisor(factor, known) for factor in size.factors)
        case Sum():
            return gcd(size.constant, *(_divisor(part, known) * factor for part, factor in size.terms))
    return 1


def _coarse(info: SymbolInfo) -> SymbolInfo:
    """As much of a symbol as decides about the instructions of its kernel."""
    if info.kind != "int":
        return SymbolInfo(info.name, info.kind)
    small = info.high is not None and info.high <= INT32_MAX
    shared = gcd(info.divisor, MAX_DIVISOR)
    return SymbolInfo(
        info.name, high=INT32_MAX if small else None, divisor=shared if shared >= MIN_DIVISOR else 1
    )


def _common(facts: Sequence[SymbolInfo]) -> SymbolInfo:
    """What holds of all symbols of these kinds; the largest is what is typical."""
    first = facts[0]
    if first.kind != "int":
        return replace(first, hint=None)
    lows = [info.low for info in facts if info.low is not None]
    highs = [info.high for info in facts if info.high is not None]
    return SymbolInfo(
        first.name,
        low=min(lows) if len(lows) == len(facts) else None,
        high=max(highs) if len(highs) == len(facts) else None,
        divisor=gcd(*(info.divisor for info in facts)),
        hint=max(info.typical() for info in facts),
    )


def _renamed(phases: Sequence[Phase], names: Mapping[str, str]) -> tuple[Phase, ...]:
    terms: dict[str, Size] = {old: symbol(new) for old, new in names.items()}
    moved: dict[Expr, Expr] = {}

    def visit(node: Expr) -> Expr:
        return (
            Scalar(names[node.name], node.dtype) if isinstance(node, Scalar) and node.name in names else node
        )

    def body(expr: Expr) -> Expr:
        return transform(substitute_expr(expr, terms, moved), visit)

    def offset(term: Size) -> Size:
        return map_indirects(substitute(term, terms), lambda atom: atom.of(body(atom.value)))

    def change(statement: Statement) -> Statement:
        values = tuple(map(body, bodies_of(statement)))
        targets = tuple((buffer, offset(term)) for buffer, term in stores_of(statement))
        match statement:
            case Store():
                return replace(statement, offset=targets[0][1], value=values[0])
            case Accumulate():
                return replace(statement, values=values)
            case ScanStore():
                return replace(statement, values=values, targets=targets)

    return tuple(
        Phase(
            tuple(Axis(axis.name, substitute(axis.size, terms)) for axis in phase.axes),
            tuple(map(change, phase.statements)),
        )
        for phase in phases
    )
