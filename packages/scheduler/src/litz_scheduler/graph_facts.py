"""Facts about loop graphs that several passes ask for."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from dataclasses import replace

from litz_ir.loops import (
    Assert,
    Axis,
    Call,
    HostScalar,
    Layout,
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
    contiguous,
    is_dense,
)
from litz_ir.scalar import Expr, Load, indirects_in, op
from litz_ir.symbols import (
    Range,
    Size,
    SymbolTable,
    coefficient,
    extent,
    free_symbols,
    simplify,
    substitute,
    symbol,
)


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


def output_memory(graph: LoopGraph) -> Counter[str]:
    """The values in whose memory the values are that the graph returns, and how many of these are in each: through
    views, but not through those that are copies."""
    copies = {o.name for o in graph.operations if isinstance(o, View) and not o.aliases}
    roots = memory_roots(graph, copies)
    return Counter(roots[name] for name in output_names(graph) if name in roots)


def shared_output_memory(graph: LoopGraph) -> set[str]:
    """The values in whose memory several values are that the graph returns."""
    return {name for name, count in output_memory(graph).items() if count > 1}


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


def element_of(value: Value, point: tuple[Size, ...]) -> tuple[Size, ...]:
    """Where a value has what a loop computes for it at a point: at 0 along what it does not vary along."""
    return tuple(0 if size == 1 else at for size, at in zip(value.type.shape, point, strict=True))


def alias_type(view: View, base: TensorType, symbols: SymbolTable) -> TensorType | None:
    """The type of a view as an alias of a buffer of type ``base``, or ``None`` when strides cannot express it: where
    the element's place is not linear in the axes, runs backwards, or depends on data."""
    names = [axis.name for axis in view.axes]
    ranges = axis_ranges(view.axes, symbols)
    element = simplify(base.layout.element(view.index), ranges)
    if indirects_in(element):
        return None
    result = view.results[0].type
    promised = result.layout.strides
    offset = substitute(element, dict.fromkeys(names, 0))
    given = view.base_strides
    if given is not None and same_strides(base, replace(base.layout, strides=given)):
        return replace(result, layout=replace(result.layout, offset=offset))
    strides: list[Size] = []
    for axis, wanted in zip(view.axes, promised, strict=True):
        if axis.size == 1:
            strides.append(wanted)  # no element is that far away, but the caller may ask
            continue
        slope = coefficient(element, axis.name)
        if slope is None or (isinstance(slope, int) and slope < 0) or free_symbols(slope) & set(names):
            return None
        # Ranges of axes speak of tensors with elements; what was promised holds for empty ones too.
        strides.append(wanted if simplify(wanted, ranges) == slope else slope)
    return replace(result, layout=replace(result.layout, strides=tuple(strides), offset=offset))


def viewed(view: View, base: TensorType) -> Expr:
    """What a view shows at a point, as a body: the base's element there, or its bits."""
    load, wanted = Load(view.base, view.index, base.dtype), view.results[0].type.dtype
    return load if base.dtype == wanted else op("bitcast", load, dtype=wanted)


def same_strides(type_: TensorType, layout: Layout) -> bool:
    """True when ``layout`` has the strides of ``type_`` wherever a dimension has more than one element."""
    if 0 in type_.shape:
        return True
    each = zip(type_.shape, type_.layout.strides, layout.strides, strict=True)
    return all(size == 1 or a == b for size, a, b in each)


def as_promised(promised: TensorType, layout: Layout) -> bool:
    """True when a buffer with ``layout`` has the strides that its type promises to the caller, if it does."""
    return not promised.layout.fixed or same_strides(promised, layout)


def dense_type(type_: TensorType) -> TensorType:
    """The type with the layout of memory made for it: what is promised to the caller, else eager's strides when they
    leave no gap or there are no elements, else row-major."""
    if type_.layout.fixed or 0 in type_.shape or is_dense(type_.shape, type_.layout):
        return type_
    return replace(type_, layout=contiguous(type_.shape))


class Materialization:
    """Which values must be in memory, and with which layout they are there.

    ``own`` are the values that eager gives memory of their own where they are copies: what the graph returns, alone or
    in several views, and what is overwritten. ``memory`` are those that something other than a loop reads or
    overwrites.
    """

    def __init__(self, graph: LoopGraph) -> None:
        self.symbols = graph.symbols
        self.own = output_names(graph) | overwritten_names(graph) | shared_output_memory(graph)
        self._types = {v.name: v.type for v in (*graph.inputs, *graph.constants) if isinstance(v, Value)}
        self._values = {v.name: (v, operation) for operation in graph.operations for v in operation.results}
        self._shown: dict[Hashable, TensorType | None] = {}
        self.memory = set(self.own)
        for operation in graph.operations:
            self.memory.update(_wanted(operation))
        for operation in reversed(graph.operations):
            if isinstance(operation, View) and operation.name in self.memory and self.shares(operation):
                self.memory.add(operation.base)

    def shares(self, view: View) -> bool:
        """True when a view that must be in memory can be an alias of its base."""
        return self._alias(view) is not None

    def _alias(self, view: View) -> TensorType | None:
        if not view.aliases and view.name in self.own:
            return None
        base, type_ = self._type(view.base), view.results[0].type
        # Layers that are alike have views that are alike.
        key = (base, type_, view.axes, view.index, view.base_strides)
        if key not in self._shown:
            self._shown[key] = alias_type(view, base, self.symbols)
        found = self._shown[key]
        return found if found is not None and as_promised(view.results[0].type, found.layout) else None

    def _type(self, name: str) -> TensorType:
        found = self._types.get(name)
        if found is None:
            value, operation = self._values[name]
            alias = self._alias(operation) if isinstance(operation, View) else None
            if isinstance(operation, Call | Sort | Region):
                found = value.type
            elif value.replaces is not None:
                found = self._type(value.replaces)
            else:
                found = alias or dense_type(value.type)
            self._types[name] = found
        return found


def _wanted(operation: Operation) -> tuple[str, ...]:
    """What an operation that is no loop reads from memory."""
    match operation:
        case Call() | Region() | Assert() | HostScalar():
            return operation.reads
        case Sort():
            return (operation.source,)
        case Scatter():
            return (operation.base,)
    return ()


def memory_roots(graph: LoopGraph, copied: Collection[str] = ()) -> dict[str, str]:
    """For every value, the oldest value whose memory it may share: through views, versions and aliasing calls; not
    through views that are ``copied``."""
    roots = {v.name: v.name for v in (*graph.inputs, *graph.constants) if isinstance(v, Value)}
    for operation in graph.operations:
        bases = dict(operation.aliases) if isinstance(operation, Call) else {}
        for value in operation.results:
            base = value.replaces or bases.get(value.name)
            if isinstance(operation, View) and operation.name not in copied:
                base = operation.base
            roots[value.name] = value.name if base is None else roots.get(base, base)
    return roots


class VersionDeadlines:
    """When the memory of each value is next overwritten, as positions in the graph; views that are ``copied`` have
    memory of their own."""

    def __init__(self, graph: LoopGraph, copied: Collection[str] = ()) -> None:
        self.roots = memory_roots(graph, copied)
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


class InlinedOperations:
    """Which operations of a graph as it came are evaluated with an operation that is left of it: those that were
    inlined into it, and itself."""

    def __init__(self, source: LoopGraph, left: LoopGraph) -> None:
        self._source = source.named()
        self._position = {name: k for k, name in enumerate(self._source)}
        self._definer = {v.name: name for name, o in self._source.items() for v in o.results}
        self._left = {value.name for operation in left.operations for value in operation.results}

    def of(self, names: Iterable[str]) -> list[tuple[str, Operation]]:
        """Names and operations that went into the operations called ``names``, in program order."""
        found: set[str] = set()
        stack = [name for name in names if name in self._source]
        while stack:
            name = stack.pop()
            if name not in found:
                found.add(name)
                reads = (read for read in self._source[name].reads if read not in self._left)
                stack.extend(self._definer[read] for read in reads if read in self._definer)
        return [(name, self._source[name]) for name in sorted(found, key=self._position.__getitem__)]
