"""Loop nests of kernels before scheduling: the order of axes, and the merging of adjacent ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from litz_ir.contraction import tiled_sum
from litz_ir.loops import Axis, UserCombiner
from litz_ir.plan import Accumulate, Phase, ScanStore, Statement, Store
from litz_ir.scalar import (
    Expr,
    Index,
    Indirect,
    Load,
    indirects_in,
    map_indirects,
    nested_reductions,
    substitute_expr,
    walk,
)
from litz_ir.symbols import Size, SymbolTable, coefficient, free_symbols, mul, substitute, symbol
from litz_scheduler.analysis.cost import estimate


@dataclass(frozen=True, slots=True)
class LoopNest:
    """The loops of a kernel before they are scheduled."""

    outer: tuple[Axis, ...]
    """The outer axes."""
    phases: tuple[Phase, ...]
    """The phases that run in order for every outer point."""
    along_sum: bool = False
    """True where the lanes of a CPU's vector registers are to be consecutive points of the last inner axis."""

    @property
    def inner(self) -> tuple[Axis, ...]:
        """The inner axes, which all phases that have any share."""
        return next((phase.axes for phase in self.phases if phase.axes), ())


def bodies_of(statement: Statement) -> tuple[Expr, ...]:
    """Return the expressions that a statement evaluates."""
    return (statement.value,) if isinstance(statement, Store) else statement.values


def stores_of(statement: Statement) -> tuple[tuple[str, Size], ...]:
    """Return the buffer and element offset of each store of a statement."""
    match statement:
        case Store():
            return ((statement.buffer, statement.offset),)
        case ScanStore():
            return statement.targets
    return ()


def nodes_of(statements: Iterable[Statement]) -> Iterator[Expr]:
    """Yield each distinct node of the bodies of statements once."""
    return walk(*(body for statement in statements for body in bodies_of(statement)))


def loads_of(statements: Iterable[Statement]) -> tuple[Size, ...]:
    """Return the element offset of each distinct load of statements."""
    return tuple(node.index[0] for node in nodes_of(statements) if isinstance(node, Load))


def terms_of(statements: Sequence[Statement]) -> tuple[Size, ...]:
    """Return each distinct index term of statements: element offsets, and indices used as values."""
    found = dict.fromkeys(term for statement in statements for _, term in stores_of(statement))
    indices = [atom.value for term in found for atom in indirects_in(term)]
    for node in walk(*indices, *(body for statement in statements for body in bodies_of(statement))):
        found.update(dict.fromkeys(node.terms if isinstance(node, Load | Index) else ()))
    return tuple(found)


def map_statements(statements: Iterable[Statement], mapping: Mapping[str, Size]) -> tuple[Statement, ...]:
    """Return the statements with axes replaced by terms."""
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
    """Sort outer and inner axes by decreasing stride of the access that depends on most of them.

    Symbolic strides are compared by their hints.
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
    fixed = _combines_in_order(nest) or _has_nested_reductions(nest)
    inner = nest.inner if fixed else _sorted(nest.inner, reads + stores, symbols)
    return LoopNest(outer, tuple(replace(p, axes=inner if p.axes else ()) for p in nest.phases))


def order_tiled(nest: LoopNest, columns: int) -> LoopNest | None:
    """Return the nest with the channel of a sum that kernels compute in tiles last; ``None`` for other nests.

    ``columns`` are those of a panel of prepacked weights.
    """
    if not columns or not nest.phases:
        return None
    first = nest.phases[0].statements[0]
    if not isinstance(first, Accumulate):
        return None
    for axis in reversed(nest.outer):
        outer = (*(each for each in nest.outer if each != axis), axis)
        if tiled_sum(first.combiner, first.values, outer, nest.inner, columns) is not None:
            return replace(nest, outer=outer)
    return None


def _combines_in_order(nest: LoopNest) -> bool:
    """Return whether a combiner is user-given, and so need not be commutative."""
    statements = (s for phase in nest.phases for s in phase.statements)
    return any(isinstance(s, Accumulate) and isinstance(s.combiner, UserCombiner) for s in statements)


def _has_nested_reductions(nest: LoopNest) -> bool:
    """Return whether bodies have nested reductions.

    Their outer reduction is tiled along the last axis, which must remain that of positions even where heads have the
    smaller stride.
    """
    return any(
        nested_reductions(body) for phase in nest.phases for s in phase.statements for body in bodies_of(s)
    )


def _sorted(axes: tuple[Axis, ...], terms: Sequence[Size], symbols: SymbolTable) -> tuple[Axis, ...]:
    if len(axes) < 2:
        return axes
    names = {axis.name for axis in axes}
    reference = max(terms, key=lambda t: len(names & free_symbols(t)), default=0)
    strides: dict[str, int] = {}
    for axis in axes:
        stride = coefficient(reference, axis.name)
        if stride is None or names & free_symbols(stride):
            return axes
        strides[axis.name] = abs(estimate(stride, symbols))
    return tuple(sorted(axes, key=lambda axis: -strides[axis.name]))


def adjoin_transposed(nest: LoopNest) -> LoopNest:
    """Move the axis along which a transposed access is contiguous next to the last outer axis.

    Tiles of the two axes touch each cache line once. The nest is pointwise, since only such points may run in any
    order.
    """
    rows = transposed_axis(nest)
    if rows is None or rows == nest.outer[-2]:
        return nest
    others = tuple(axis for axis in nest.outer[:-1] if axis != rows)
    return replace(nest, outer=(*others, rows, nest.outer[-1]))


def transposed_axis(nest: LoopNest) -> Axis | None:
    """Return the outer axis along which an access is contiguous that is strided along the last; None if there is none.

    Only pointwise nests have one. Where several accesses are transposed, the first decides.
    """
    statements = [statement for phase in nest.phases for statement in phase.statements]
    if (
        len(nest.outer) < 2
        or nest.inner
        or any(not isinstance(s, Store) or s.mode != "set" for s in statements)
    ):
        return None
    last = nest.outer[-1]
    for term in (*(term for s in statements for _, term in stores_of(s)), *loads_of(statements)):
        if coefficient(term, last.name) in (0, 1, None):
            continue
        for axis in nest.outer[:-1]:
            if coefficient(term, axis.name) == 1:
                return axis
    return None


def collapse(nest: LoopNest) -> LoopNest:
    """Merge adjacent axes that are one axis in all accesses: outer stride = inner stride * inner size."""
    nest = _collapse(nest, "outer")
    return _collapse(nest, "inner")


def _collapse(nest: LoopNest, which: str) -> LoopNest:
    axes = nest.outer if which == "outer" else nest.inner
    k = len(axes) - 1
    while k > 0:
        outer, inner = axes[k - 1], axes[k]
        statements = [s for p in nest.phases for s in p.statements if which == "outer" or p.axes]
        terms = terms_of(statements)
        scans = which == "inner" and any(isinstance(s, ScanStore) for s in statements)
        if not scans and all(_mergeable(term, outer, inner) for term in terms):
            merged = Axis(outer.name, mul(outer.size, inner.size))
            # Terms are linear in both axes, so that the inner one can run over all points with the outer one at 0.
            mapping: dict[str, Size] = {outer.name: 0, inner.name: symbol(outer.name)}
            axes = (*axes[: k - 1], merged, *axes[k + 1 :])
            nest = _rebuilt(nest, which, axes, mapping)
        k -= 1
    return nest


def _mergeable(term: Size, outer: Axis, inner: Axis) -> bool:
    # Loads of indirect indices are terms of their own.
    term = map_indirects(term, _as_symbol)
    a, b = coefficient(term, outer.name), coefficient(term, inner.name)
    if a is None or b is None:
        return False
    other = {outer.name, inner.name}
    return not (free_symbols(a) | free_symbols(b)) & other and a == mul(b, inner.size)


def _as_symbol(index: Indirect) -> Size:
    """Return a symbol in place of an indirect index, or the index where its dimension depends on symbols."""
    return symbol(f"indirect_{id(index)}") if isinstance(index.size, int) else index


def _rebuilt(nest: LoopNest, which: str, axes: tuple[Axis, ...], mapping: dict[str, Size]) -> LoopNest:
    phases = []
    for phase in nest.phases:
        touched = which == "outer" or bool(phase.axes)
        statements = map_statements(phase.statements, mapping) if touched else phase.statements
        own = axes if which == "inner" and phase.axes else phase.axes
        phases.append(Phase(own, statements))
    return LoopNest(axes if which == "outer" else nest.outer, tuple(phases))
