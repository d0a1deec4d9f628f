"""Facts about loop graphs that several passes ask for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace

from litz_ir.loops.layout import Layout, contiguous, is_dense
from litz_ir.loops.nodes import (
    Assert,
    Axis,
    Call,
    HostScalar,
    LoopGraph,
    Mutation,
    Operation,
    Pointwise,
    Reduction,
    Ref,
    Region,
    Scan,
    Scatter,
    Sort,
    TensorType,
    Value,
    View,
)
from litz_ir.symbols.ranges import Range, extent
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size, Term, coefficient, substitute, symbol


def output_names(graph: LoopGraph) -> set[str]:
    """The values that the graph returns."""
    return {output.name for output in graph.outputs if isinstance(output, Ref)}


def overwritten_by(operation: Operation) -> set[str]:
    """The values that an operation overwrites in place."""
    names = {value.replaces for value in operation.results if value.replaces is not None}
    if isinstance(operation, Mutation):
        names.add(operation.target)
    elif isinstance(operation, Call):
        names.update(read for read, _ in operation.mutates)
    return names


def overwritten_names(graph: LoopGraph) -> set[str]:
    """The values that some operation overwrites in place."""
    return {name for operation in graph.operations for name in overwritten_by(operation)}


def axes_of(operation: Operation) -> tuple[Axis, ...]:
    """Every axis that the operation's bodies may use."""
    match operation:
        case Reduction():
            return operation.axes + operation.reduce_axes
        case Scan():
            return (*operation.axes, operation.scan_axis)
        case Pointwise() | Scatter() | View():
            return operation.axes
    return ()


def axis_ranges(axes: Iterable[Axis], symbols: SymbolTable) -> dict[str, Range]:
    """What is known of axes and symbols: an axis runs over ``[0, size)``."""
    ranges = dict(symbols.ranges())
    for axis in axes:
        ranges[axis.name] = extent(axis.size)
    return ranges


def is_identity(index: tuple[Size, ...], axes: tuple[Axis, ...]) -> bool:
    """True when an index walks the axes in their order, so that it is the point at hand."""
    if len(index) != len(axes):
        return False
    return all(
        t == symbol(axis.name) or (axis.size == 1 and t == 0) for t, axis in zip(index, axes, strict=True)
    )


def is_strided(view: View) -> bool:
    """True when strides alone can express the view's index: linear in its axes, and nowhere backwards."""
    names = {axis.name for axis in view.axes}
    for term in view.index:
        if not isinstance(term, Term):
            continue
        for name in term.free_symbols & names:
            slope = coefficient(term, name)
            if slope is None or (isinstance(slope, int) and slope < 0):
                return False
            if isinstance(slope, Term) and slope.free_symbols & names:
                return False
    return True


def alias_type(view: View, base: TensorType) -> TensorType | None:
    """The type of a strided view of a buffer of type ``base``, or ``None`` when strides cannot express it."""
    names = [axis.name for axis in view.axes]
    element = base.layout.element(view.index)
    strides: list[Size] = []
    for name in names:
        slope = coefficient(element, name)
        if slope is None or (isinstance(slope, Term) and slope.free_symbols & set(names)):
            return None
        strides.append(slope)
    offset = substitute(element, dict.fromkeys(names, 0))
    result = view.results[0].type
    return replace(result, layout=replace(result.layout, strides=tuple(strides), offset=offset))


def shares_memory(view: View, own: set[str]) -> bool:
    """True when a view that must be in memory can be an alias of its base; ``own`` names the values that eager gives
    memory of their own where they are copies: what the graph returns and what is overwritten."""
    return is_strided(view) and (view.aliases or view.name not in own)


def in_memory(graph: LoopGraph) -> set[str]:
    """Values that something other than a loop reads or overwrites, so that they must exist in memory."""
    own = output_names(graph) | overwritten_names(graph)
    names = set(own)
    for operation in graph.operations:
        match operation:
            case Call() | Region() | Assert() | HostScalar():
                names.update(operation.reads)
            case Sort():
                names.add(operation.source)
            case Scatter():
                names.add(operation.base)
    for operation in reversed(graph.operations):
        if isinstance(operation, View) and operation.name in names and shares_memory(operation, own):
            names.add(operation.base)
    return names


def memory_roots(graph: LoopGraph) -> dict[str, str]:
    """For every value, the oldest value whose memory it may share: through views, versions and aliasing calls."""
    roots = {v.name: v.name for v in (*graph.inputs, *graph.constants) if isinstance(v, Value)}
    for operation in graph.operations:
        bases = dict(operation.aliases) if isinstance(operation, Call) else {}
        for value in operation.results:
            base = value.replaces or bases.get(value.name)
            if isinstance(operation, View):
                base = operation.base
            roots[value.name] = value.name if base is None else roots.get(base, base)
    return roots


class Versions:
    """When the memory of each value is next overwritten, as positions in the graph."""

    def __init__(self, graph: LoopGraph) -> None:
        self.roots = memory_roots(graph)
        self.born: dict[str, int] = {}
        self.writes: dict[str, list[int]] = {}
        self.writers: dict[int, set[str]] = {}
        for position, operation in enumerate(graph.operations):
            for value in operation.results:
                self.born[value.name] = position
            names = overwritten_by(operation)
            if names:
                self.writers[position] = names
            for root in {self.roots.get(name, name) for name in names}:
                self.writes.setdefault(root, []).append(position)

    def deadline(self, name: str) -> int | None:
        """The position of the operation that overwrites what ``name`` holds, if one does."""
        positions = self.writes.get(self.roots.get(name, name))
        if positions is None:
            return None
        place = bisect_right(positions, self.born.get(name, -1))
        return positions[place] if place < len(positions) else None

    def replaced_at(self, name: str, position: int) -> bool:
        """True when the operation at ``position`` overwrites exactly ``name``."""
        return name in self.writers.get(position, ())


def named(axes: Iterable[Axis], terms: Iterable[Size]) -> dict[str, Size]:
    """A mapping from axes to the terms that stand for them."""
    return {axis.name: term for axis, term in zip(axes, terms, strict=True)}


def same_strides(type_: TensorType, layout: Layout) -> bool:
    """True when ``layout`` has the strides of ``type_`` wherever a dimension has more than one element."""
    if 0 in type_.shape:
        return True
    each = zip(type_.shape, type_.layout.strides, layout.strides, strict=True)
    return all(size == 1 or a == b for size, a, b in each)


def dense_type(type_: TensorType) -> TensorType:
    """The type with a layout that its memory can have: eager's strides when they leave no gap, else row-major."""
    if is_dense(type_.shape, type_.layout):
        return type_
    return replace(type_, layout=contiguous(type_.shape, fixed=type_.layout.fixed))
