"""Isomorphic kernels: equal up to the sizes of their outer axes and the names of their symbols."""

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
from litz_scheduler.analysis.loop_order import bodies_of, nodes_of, stores_of, terms_of

MAX_DIVISOR, MIN_DIVISOR = 16, 4
"""The divisors, in elements, that templates distinguish: powers of two from the narrowest to the widest vectorised
access.

Sizes with other divisors make different templates, since one odd size would have all others load single elements.
"""

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KernelTemplate:
    """The common form of isomorphic kernels, and the symbols of one of them."""

    kernel: Kernel
    """The kernel without a name, over symbols of its own about which only general facts are kept."""
    facts: tuple[SymbolInfo, ...]
    """The facts about each symbol that hold for this kernel."""
    values: tuple[Size, ...]
    """The value of each symbol, over the symbols of this kernel."""

    def at(self, symbols: Mapping[str, Size]) -> KernelTemplate:
        """Return the template with the symbols of its kernel replaced by values."""
        return replace(self, values=tuple(substitute(value, symbols) for value in self.values))


def kernel_template(kernel: Kernel) -> KernelTemplate:
    """Return a kernel's template.

    Its symbols are ``n0``, ``n1``, … for the sizes of outer axes and ``v0``, … for all others.
    """
    used = _used(kernel)
    used_infos = [info for info in kernel.symbols if info.name in used]
    names = {info.name: f"v{k}" for k, info in enumerate(used_infos)}
    facts = [replace(info, name=names[info.name]) for info in used_infos]
    values: list[Size] = [symbol(info.name) for info in used_infos]
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


def subkernel_of(name: str, kernels: Sequence[tuple[KernelTemplate, tuple[str, ...]]]) -> Subkernel:
    """Return the subkernel that runs isomorphic kernels, given by template and buffers.

    A symbol with one constant value in all of them becomes a constant; the facts of any other symbol hold for all of
    them.
    """
    templates = [each for each, _ in kernels]
    general = templates[0].kernel
    fixed: dict[str, Size] = {}
    infos: list[SymbolInfo] = []
    for k, info in enumerate(general.symbols):
        given = {each.values[k] for each in templates}
        (first, *others) = given
        if isinstance(first, int) and not others:
            fixed[info.name] = first
        else:
            infos.append(_common([each.facts[k] for each in templates]))
    outer = tuple(Axis(axis.name, substitute(axis.size, fixed)) for axis in general.outer)
    kernel = replace(general, name=name, symbols=tuple(infos), outer=outer)
    free = [k for k, info in enumerate(general.symbols) if info.name not in fixed]
    invocations = (Invocation(buffers, tuple(each.values[k] for k in free)) for each, buffers in kernels)
    return Subkernel(kernel, tuple(invocations))


def _used(kernel: Kernel) -> set[str]:
    """Return the names of the symbols that the phases of a kernel use."""
    names: set[str] = set()
    for phase in kernel.phases:
        names.update(*(free_symbols(axis.size) for axis in phase.axes))
        names.update(*map(free_symbols, terms_of(phase.statements)))
        names.update(*(body.free_symbols for each in phase.statements for body in bodies_of(each)))
        names.update(node.name for node in nodes_of(phase.statements) if isinstance(node, Scalar))
    return names


def _fact(name: str, size: Size, symbols: Sequence[SymbolInfo]) -> SymbolInfo:
    """Return range, divisor and hint of a size as the facts of a symbol."""
    found = bounds(size, {info.name: info.range for info in symbols if info.kind != "float"})
    divisor = _divisor(size, {info.name: info.divisor for info in symbols})
    low = None if found.low is None else max(0, found.low)
    return SymbolInfo(
        name, low=low, high=found.high, divisor=divisor, hint=SymbolTable(tuple(symbols)).hint(size)
    )


def _divisor(size: Size, known: Mapping[str, int]) -> int:
    """Return a number that divides a size, never 0."""
    match size:
        case int():
            return abs(size)
        case Symbol():
            return known[size.name]
        case Product():
            return prod(_divisor(each, known) for each in size.factors)
        case Sum():
            return gcd(size.constant, *(_divisor(each, known) * scale for each, scale in size.terms))
    return 1


def _coarse(info: SymbolInfo) -> SymbolInfo:
    """Return the facts of a symbol that affect the generated instructions.

    They are the fit into 32 bits, and a divisor that allows vectorised access.
    """
    if info.kind != "int":
        return SymbolInfo(info.name, info.kind)
    small = info.high is not None and info.high <= _INT32_MAX
    divisor = gcd(info.divisor, MAX_DIVISOR)
    high = _INT32_MAX if small else None
    return SymbolInfo(info.name, high=high, divisor=divisor if divisor >= MIN_DIVISOR else 1)


def _common(facts: Sequence[SymbolInfo]) -> SymbolInfo:
    """Return the facts that hold for all of these symbols, with the largest hint."""
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
    """Return phases with symbols and scalars renamed."""
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
