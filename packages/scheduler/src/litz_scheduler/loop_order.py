"""Which axis is outermost, and which neighbours are really one axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from litz_ir.loops import Axis, UserCombiner
from litz_ir.plan import Accumulate, Phase, ScanStore, Statement, Store
from litz_ir.scalar import Expr, Index, Load, nested_reductions, substitute_expr, walk
from litz_ir.symbols import Size, SymbolTable, coefficient, free_symbols, mul, substitute, symbol
from litz_scheduler.cost import estimate


@dataclass(frozen=True, slots=True)
class LoopNest:
    """A kernel's loops before they are scheduled."""

    outer: tuple[Axis, ...]
    phases: tuple[Phase, ...]

    @property
    def inner(self) -> tuple[Axis, ...]:
        """The inner axes of the phases that have any (they share them)."""
        return next((phase.axes for phase in self.phases if phase.axes), ())


def bodies_of(statement: Statement) -> tuple[Expr, ...]:
    """The expressions that a statement evaluates."""
    return (statement.value,) if isinstance(statement, Store) else statement.values


def stores_of(statement: Statement) -> tuple[tuple[str, Size], ...]:
    """(buffer, offset) of what a statement writes."""
    match statement:
        case Store():
            return ((statement.buffer, statement.offset),)
        case ScanStore():
            return statement.targets
    return ()


def nodes_of(statements: Iterable[Statement]) -> Iterator[Expr]:
    """Every distinct node of what statements evaluate, once: their bodies share most of what they are made of."""
    return walk(*(body for statement in statements for body in bodies_of(statement)))


def loads_of(statements: Iterable[Statement]) -> tuple[Size, ...]:
    """The offsets that statements read, of each distinct load."""
    return tuple(node.index[0] for node in nodes_of(statements) if isinstance(node, Load))


def terms_of(statements: Sequence[Statement]) -> tuple[Size, ...]:
    """Every distinct term that statements evaluate: offsets and indices used as values."""
    found = dict.fromkeys(term for statement in statements for _, term in stores_of(statement))
    for node in nodes_of(statements):
        found.update(dict.fromkeys(node.terms if isinstance(node, Load | Index) else ()))
    return tuple(found)


def map_statements(statements: Iterable[Statement], mapping: Mapping[str, Size]) -> tuple[Statement, ...]:
    """The statements with axes replaced by terms."""
    memo: dict[Expr, Expr] = {}

    def change(statement: Statement) -> Statement:
        values = tuple(substitute_expr(value, mapping, memo) for value in bodies_of(statement))
        match statement:
            case Store():
                offset = substitute(statement.offset, mapping)
                return Store(statement.buffer, offset, values[0], statement.mode)
            case Accumulate():
                return replace(statement, values=values)
            case ScanStore():
                targets = tuple((buffer, substitute(offset, mapping)) for buffer, offset in statement.targets)
                return replace(statement, values=values, targets=targets)

    return tuple(map(change, statements))


def order_axes(nest: LoopNest, symbols: SymbolTable) -> LoopNest:
    """Sort outer and inner axes so that the access that spans most of them runs through memory in order.

    Strides that are not known are compared by their hints.
    """
    if any(
        isinstance(s, ScanStore) or (isinstance(s, Store) and s.mode != "set")
        for p in nest.phases
        for s in p.statements
    ):
        return nest
    stores = [term for p in nest.phases for s in p.statements for _, term in stores_of(s)]
    reads = list(loads_of(s for p in nest.phases for s in p.statements))
    outer = _sorted(nest.outer, stores + reads, symbols)
    kept = _combines_in_order(nest) or _holds_products(nest)
    inner = nest.inner if kept else _sorted(nest.inner, reads + stores, symbols)
    return LoopNest(outer, tuple(replace(p, axes=inner if p.axes else ()) for p in nest.phases))


def _combines_in_order(nest: LoopNest) -> bool:
    """True for combinations that are given as a body: nobody promises that their operands may be swapped."""
    statements = (s for phase in nest.phases for s in phase.statements)
    return any(isinstance(s, Accumulate) and isinstance(s.combiner, UserCombiner) for s in statements)


def _holds_products(nest: LoopNest) -> bool:
    """True where bodies hold sums of products: what is summed of them is cut into tiles along the last axis, which is
    the one of positions, however close to one another heads lie in memory."""
    return any(
        nested_reductions(body) for phase in nest.phases for s in phase.statements for body in bodies_of(s)
    )


def _sorted(axes: tuple[Axis, ...], terms: Sequence[Size], symbols: SymbolTable) -> tuple[Axis, ...]:
    if len(axes) < 2:
        return axes
    names = {axis.name for axis in axes}
    reference = max(terms, key=lambda t: len(names & free_symbols(t)), default=0)
    steps: dict[str, int] = {}
    for axis in axes:
        stride = coefficient(reference, axis.name)
        if stride is None or names & free_symbols(stride):
            return axes
        steps[axis.name] = abs(estimate(stride, symbols))
    return tuple(sorted(axes, key=lambda axis: -steps[axis.name]))


def collapse(nest: LoopNest) -> LoopNest:
    """Merge neighbouring axes that every access walks as if they were one."""
    nest = _collapse(nest, "outer")
    return _collapse(nest, "inner")


def _collapse(nest: LoopNest, which: str) -> LoopNest:
    axes = nest.outer if which == "outer" else nest.inner
    k = len(axes) - 1
    while k > 0:
        slow, fast = axes[k - 1], axes[k]
        statements = [s for p in nest.phases for s in p.statements if which == "outer" or p.axes]
        terms = terms_of(statements)
        scans = which == "inner" and any(isinstance(s, ScanStore) for s in statements)
        if not scans and all(_mergeable(term, slow, fast) for term in terms):
            merged = Axis(slow.name, mul(slow.size, fast.size))
            # Linear terms keep their value when the fast axis takes over and the slow one stands still.
            mapping: dict[str, Size] = {slow.name: 0, fast.name: symbol(slow.name)}
            axes = (*axes[: k - 1], merged, *axes[k + 1 :])
            nest = _rebuilt(nest, which, axes, mapping)
        k -= 1
    return nest


def _mergeable(term: Size, slow: Axis, fast: Axis) -> bool:
    a, b = coefficient(term, slow.name), coefficient(term, fast.name)
    if a is None or b is None:
        return False
    other = {slow.name, fast.name}
    return not (free_symbols(a) | free_symbols(b)) & other and a == mul(b, fast.size)


def _rebuilt(nest: LoopNest, which: str, axes: tuple[Axis, ...], mapping: dict[str, Size]) -> LoopNest:
    phases = []
    for phase in nest.phases:
        touched = which == "outer" or bool(phase.axes)
        statements = map_statements(phase.statements, mapping) if touched else phase.statements
        own = axes if which == "inner" and phase.axes else phase.axes
        phases.append(Phase(own, statements))
    return LoopNest(axes if which == "outer" else nest.outer, tuple(phases))
