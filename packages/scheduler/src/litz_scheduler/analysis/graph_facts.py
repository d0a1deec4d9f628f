"""Queries on loop graphs: outputs, overwritten values, views as aliases, memory and inlining."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from litz_ir.dtypes import DType
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
from litz_ir.scalar import Expr, Load, indirects_in, loads, op
from litz_ir.symbols import (
    Range,
    Simplifier,
    Size,
    SymbolTable,
    coefficient,
    extent,
    free_symbols,
    is_natural,
    simplify,
    substitute,
    symbol,
)

VECTOR_BYTES = 16
"""Bytes that a thread of a GPU loads, or copies to shared memory, at once."""


def output_names(graph: LoopGraph) -> set[str]:
    """Return the values that the graph returns."""
    return {output.name for output in graph.outputs if isinstance(output, Ref)}


def overwritten_by(operation: Operation) -> set[str]:
    """Return the values that an operation overwrites in place."""
    names = {value.replaces for value in operation.results if value.replaces is not None}
    if isinstance(operation, Mutation):
        names.add(operation.target)
    elif isinstance(operation, Call):
        names.update(read for read, _ in operation.mutates)
    return names


def overwritten_names(graph: LoopGraph) -> set[str]:
    """Return the values that some operation of the graph overwrites in place."""
    return {name for operation in graph.operations for name in overwritten_by(operation)}


def output_memory(graph: LoopGraph) -> Counter[str]:
    """Count the returned values in the memory of each value.

    A returned view counts for its base, unless the view is a copy.
    """
    copies = {o.name for o in graph.operations if isinstance(o, View) and not o.aliases}
    roots = memory_roots(graph, copies)
    return Counter(roots[name] for name in output_names(graph) if name in roots)


def shared_output_memory(graph: LoopGraph) -> set[str]:
    """Return the values whose memory holds more than one returned value."""
    return {name for name, count in output_memory(graph).items() if count > 1}


def owned_elsewhere(graph: LoopGraph) -> set[str]:
    """Return the values whose memory the caller gets, themselves or as views, or a later operation overwrites."""
    return output_names(graph) | set(output_memory(graph)) | overwritten_names(graph)


def axes_of(operation: Operation) -> tuple[Axis, ...]:
    """Return all axes that the bodies of an operation may use."""
    match operation:
        case Reduction():
            return operation.axes + operation.reduce_axes
        case Scan():
            return (*operation.axes, operation.scan_axis)
        case Pointwise() | Scatter() | View():
            return operation.axes
    return ()


def element_axes(type_: TensorType) -> tuple[Axis, ...]:
    """Return axes ``i0``, ``i1``, ... over the elements of a tensor."""
    return tuple(Axis(f"i{k}", size) for k, size in enumerate(type_.shape))


def readers_by_value(graph: LoopGraph) -> Mapping[str, list[Operation]]:
    """Return the operations that read each value, in program order; an empty list for a value without any."""
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in graph.operations:
        for name in dict.fromkeys(operation.reads):
            found[name].append(operation)
    return found


def reads_columns(operation: Reduction, types: Mapping[str, TensorType]) -> bool:
    """Return whether loads are more often contiguous along the outer axes than along the reduced ones, given the types
    of all buffers.

    Loads that do not vary along reduced axes, such as statistics of rows, do not count.
    """
    reduced = {axis.name for axis in operation.reduce_axes}
    balance = 0
    for load in loads(*operation.bodies):
        offset = types[load.buffer].layout.element(load.index)
        if free_symbols(offset) & reduced:
            balance += any(coefficient(offset, axis.name) == 1 for axis in operation.axes)
            balance -= any(coefficient(offset, axis.name) == 1 for axis in operation.reduce_axes)
    return balance > 0


def has_unaligned_rows(offset: Size, across: Iterable[Axis], along: Iterable[Axis], dtype: DType) -> bool:
    """Return whether a load, contiguous ``across`` the results, has rows of them, one for each point ``along``, that
    start at addresses which are no multiples of 16 bytes."""
    if not any(coefficient(offset, axis.name) == 1 for axis in across):
        return False
    strides = (coefficient(offset, axis.name) for axis in along)
    return any(isinstance(each, int) and each * dtype.itemsize % VECTOR_BYTES for each in strides)


def axis_ranges(axes: Iterable[Axis], symbols: SymbolTable) -> dict[str, Range]:
    """Return the ranges of symbols and axes by name: an axis lies in ``[0, size)``."""
    ranges = dict(symbols.ranges())
    for axis in axes:
        ranges[axis.name] = extent(axis.size)
    return ranges


def reads_rows(
    found: Iterable[Load], axes: Sequence[Axis], values: Mapping[str, Value], symbols: SymbolTable
) -> bool:
    """Return whether loads are contiguous along the last of ``axes``, or do not vary along it."""
    if not axes:
        return False
    last, simplifier = axes[-1].name, Simplifier(axis_ranges(axes, symbols))
    for load in found:
        offset = simplifier.simplify(values[load.buffer].type.layout.element(load.index))
        if indirects_in(offset) or (last in free_symbols(offset) and coefficient(offset, last) != 1):
            return False
    return True


def is_identity(index: tuple[Size, ...], axes: tuple[Axis, ...]) -> bool:
    """Return whether an index is the axes themselves, in order; 0 counts for an axis of size 1."""
    if len(index) != len(axes):
        return False
    return all(
        t == symbol(axis.name) or (axis.size == 1 and t == 0) for t, axis in zip(index, axes, strict=True)
    )


def element_of(value: Value, point: tuple[Size, ...]) -> tuple[Size, ...]:
    """Return the element of a value at a point of a loop: 0 along dimensions of size 1."""
    return tuple(0 if size == 1 else at for size, at in zip(value.type.shape, point, strict=True))


def alias_type(view: View, base: TensorType, symbols: SymbolTable) -> TensorType | None:
    """Return the type of a view as an alias of a buffer of type ``base``.

    ``None`` where strides cannot express it: the element offset is not linear in the axes, may have a negative
    stride, or depends on data.
    """
    names = [axis.name for axis in view.axes]
    ranges = axis_ranges(view.axes, symbols)
    element = simplify(base.layout.element(view.index), ranges)
    if indirects_in(element):
        return None
    result = view.results[0].type
    promised = result.layout.strides
    offset = substitute(element, dict.fromkeys(names, 0))
    if 0 in result.shape:
        return replace(result, layout=replace(result.layout, offset=offset))
    base_strides = view.base_strides
    if base_strides is not None and same_strides(base, replace(base.layout, strides=base_strides)):
        return replace(result, layout=replace(result.layout, offset=offset))
    strides: list[Size] = []
    for axis, stride in zip(view.axes, promised, strict=True):
        if axis.size == 1:
            strides.append(stride)  # addresses no element, but the caller can read the stride
            continue
        slope = coefficient(element, axis.name)
        if slope is None or free_symbols(slope) & set(names):
            return None
        # The ranges assume that axes are not empty; the promised stride also holds for empty tensors.
        if simplify(stride, ranges) == slope:
            strides.append(stride)
        elif is_natural(slope, ranges):
            strides.append(slope)
        else:
            return None
    return replace(result, layout=replace(result.layout, strides=tuple(strides), offset=offset))


def viewed(view: View, base: TensorType) -> Expr:
    """Return the body of a view: the load of the base's element, bit-cast where the dtypes differ."""
    load, dtype = Load(view.base, view.index, base.dtype), view.results[0].type.dtype
    return load if base.dtype == dtype else op("bitcast", load, dtype=dtype)


def same_strides(type_: TensorType, layout: Layout) -> bool:
    """Return whether ``layout`` has the strides of ``type_``; those of dimensions of size 1 do not count."""
    if 0 in type_.shape:
        return True
    dimensions = zip(type_.shape, type_.layout.strides, layout.strides, strict=True)
    return all(size == 1 or a == b for size, a, b in dimensions)


def as_promised(promised: TensorType, layout: Layout) -> bool:
    """Return whether a buffer with ``layout`` has the strides that a fixed layout promises to the caller."""
    return not promised.layout.fixed or same_strides(promised, layout)


def dense_type(type_: TensorType) -> TensorType:
    """Return the type of a newly allocated buffer.

    A fixed layout is unchanged, as are eager's strides where they are dense or the tensor is empty; any other layout
    becomes row-major.
    """
    if type_.layout.fixed or 0 in type_.shape or is_dense(type_.shape, type_.layout):
        return type_
    return replace(type_, layout=contiguous(type_.shape))


class Materialization:
    """The values of a graph that must be materialised, and their layouts in memory."""

    def __init__(self, graph: LoopGraph) -> None:
        self.symbols = graph.symbols
        self.separate = output_names(graph) | overwritten_names(graph) | shared_output_memory(graph)
        self._types = {v.name: v.type for v in (*graph.inputs, *graph.constants) if isinstance(v, Value)}
        self._values = {v.name: (v, operation) for operation in graph.operations for v in operation.results}
        self._aliases: dict[Hashable, TensorType | None] = {}
        """The values that need memory of their own where eager copies them: returned, alone or in several views, or
        overwritten."""
        self.memory = set(self.separate)
        """The values that something other than a loop reads or overwrites."""
        for operation in graph.operations:
            self.memory.update(_memory_reads(operation))
        for operation in reversed(graph.operations):
            if isinstance(operation, View) and operation.name in self.memory and self.shares(operation):
                self.memory.add(operation.base)

    def shares(self, view: View) -> bool:
        """Return whether a view that must be in memory can be an alias of its base."""
        return self._alias(view) is not None

    def _alias(self, view: View) -> TensorType | None:
        if not view.aliases and view.name in self.separate:
            return None
        base, type_ = self._type(view.base), view.results[0].type
        # Repeated layers have equal views, so that results are memoised by type and index.
        key = (base, type_, view.axes, view.index, view.base_strides)
        if key not in self._aliases:
            self._aliases[key] = alias_type(view, base, self.symbols)
        found = self._aliases[key]
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


def _memory_reads(operation: Operation) -> tuple[str, ...]:
    """Return the values that an operation other than a loop reads from memory."""
    match operation:
        case Call() | Region() | Assert() | HostScalar():
            return operation.reads
        case Sort():
            return (operation.source,)
        case Scatter():
            return (operation.base,)
    return ()


def memory_roots(graph: LoopGraph, copied: Collection[str] = ()) -> dict[str, str]:
    """Return the oldest value whose memory each value may share.

    Views, versions of a mutated buffer and calls with aliased results share memory; views in ``copied`` do not.
    """
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
    """The position in the graph at which the memory of each value is next overwritten.

    Views in ``copied`` have memory of their own.
    """

    def __init__(self, graph: LoopGraph, copied: Collection[str] = ()) -> None:
        self.roots = memory_roots(graph, copied)
        """The value that owns the memory of each value."""
        self.born: dict[str, int] = {}
        """The position of the operation that defines each value."""
        self.writes: dict[str, list[int]] = {}
        """The positions at which the memory of each root is overwritten, in order."""
        self.writers: dict[int, set[str]] = {}
        """The values that the operation at a position overwrites."""
        for position, operation in enumerate(graph.operations):
            for value in operation.results:
                self.born[value.name] = position
            names = overwritten_by(operation)
            if names:
                self.writers[position] = names
            for root in {self.roots.get(name, name) for name in names}:
                self.writes.setdefault(root, []).append(position)

    def deadline(self, name: str) -> int | None:
        """Return the position of the operation that overwrites ``name``; ``None`` where none does."""
        positions = self.writes.get(self.roots.get(name, name))
        if positions is None:
            return None
        following = bisect_right(positions, self.born.get(name, -1))
        return positions[following] if following < len(positions) else None

    def replaced_at(self, name: str, position: int) -> bool:
        """Return whether the operation at ``position`` overwrites ``name`` itself, not only its memory."""
        return name in self.writers.get(position, ())


def named(axes: Iterable[Axis], terms: Iterable[Size]) -> dict[str, Size]:
    """Return a mapping from the names of axes to terms."""
    return {axis.name: term for axis, term in zip(axes, terms, strict=True)}


class InlinedOperations:
    """The operations of the original graph that were inlined into each operation of the transformed graph."""

    def __init__(self, source: LoopGraph, remaining: LoopGraph) -> None:
        self._source = source.named()
        self._position = {name: k for k, name in enumerate(self._source)}
        self._producer = {v.name: name for name, o in self._source.items() for v in o.results}
        self._remaining = {value.name for operation in remaining.operations for value in operation.results}

    def of(self, names: Iterable[str]) -> list[tuple[str, Operation]]:
        """Return the original operations that the operations called ``names`` compute, themselves included.

        They come with their names, in program order. One that a pass made computes the operation that it is named
        after: ``sum.partial`` computes ``sum``.
        """
        found: set[str] = set()
        originals = (name if name in self._source else name.partition(".")[0] for name in names)
        stack = [name for name in originals if name in self._source]
        while stack:
            name = stack.pop()
            if name not in found:
                found.add(name)
                reads = (read for read in self._source[name].reads if read not in self._remaining)
                stack.extend(self._producer[read] for read in reads if read in self._producer)
        return [(name, self._source[name]) for name in sorted(found, key=self._position.__getitem__)]
