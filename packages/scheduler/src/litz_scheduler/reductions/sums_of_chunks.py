"""Sums over columns in the loop that reduces the rows of one matrix, for a CPU, which then reads the matrix once.

The gradient of a normalisation needs both. A thread walks chunks of rows; what it adds up for each column is a row of
partial sums for every chunk, which stays in its cache. A last loop adds the rows of all chunks in order, so that no
result depends on which thread is faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from litz_ir.dtypes import f32
from litz_ir.fused import Decision
from litz_ir.loops import (
    Axis,
    LoopGraph,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    Scatter,
    Value,
    View,
    contiguous,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import Load, const, loads, nested_reductions, substitute_expr
from litz_ir.symbols import Size, add, mul, symbol
from litz_ir.target import Capabilities, DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import element_of, overwritten_names, readers_by_value
from litz_scheduler.analysis.iteration_space import collapsed_axes, divided, space_of

_SUM = NamedCombiner("sum")

_CHUNKS = 8
"""Chunks for each thread, so that threads that start late or are slower have fewer of them."""

_MIN_ROWS = 16
"""Fewest rows of a chunk: the partial sums of each are written to memory and read again."""

_MIN_BYTES = 1 << 20
"""Fewest bytes that need not be read again: two small loops more take about as long as to read so much."""

_CACHE_SHARE = 4
"""The partial sums of a chunk for one column sum take at most this fraction of the L2 cache."""


@dataclass(frozen=True, slots=True)
class SumsOfChunks:
    """Add up columns in the loop over rows that reduces each row, on a CPU."""

    name: str = "sums-of-chunks"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "cpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        found = _Finder(data, context).columns()
        if not found:
            return data
        after: dict[int, list[_Column]] = {}
        for column in found:
            after.setdefault(column.position, []).append(column)
        moved = {column.total.name for column in found}
        order = _Order(data)
        for position, operation in enumerate(data.operations):
            if operation.name not in moved:
                order.add((operation,))
            for column in after.get(position, ()):
                order.add(column.operations())
                note = f"{column.chunks} chunks of {column.rows // column.chunks} rows"
                context.decide(Decision("split", column.total.name, "split", reasons.SPLIT_ROWS, note=note))
        return data.with_operations(tuple(order.operations))


class _Order:
    """Operations in an order in which each follows what it reads: one that comes too early waits."""

    def __init__(self, graph: LoopGraph) -> None:
        self.operations: list[Operation] = []
        self._waiting: list[Operation] = []
        self._missing = {value.name for each in graph.operations for value in each.results}

    def add(self, operations: Iterable[Operation]) -> None:
        """Append operations, and those that waited for them; others wait."""
        operations = tuple(operations)
        self._missing.update(value.name for each in operations for value in each.results)
        for operation in operations:
            if not self._append(operation):
                self._waiting.append(operation)
        while any(ready := [self._append(each) for each in self._waiting]):
            self._waiting = [each for each, done in zip(self._waiting, ready, strict=True) if not done]

    def _append(self, operation: Operation) -> bool:
        """Append an operation whose operands are defined; return whether it was."""
        if self._missing.intersection(operation.reads):
            return False
        self.operations.append(operation)
        self._missing.difference_update(value.name for value in operation.results)
        return True


@dataclass(frozen=True, slots=True)
class _Column:
    """A sum over the rows of a matrix."""

    total: Reduction
    """The sum."""
    rows: int
    """The number of rows."""
    chunks: int
    """The number of chunks of rows, a divisor of ``rows``."""
    position: int
    """The position of the operation that the sum follows, or of its own."""

    def operations(self) -> Iterator[Operation]:
        """Yield zeros, the sums of chunks and their sum."""
        total, value = self.total, self.total.results[0]
        space = space_of(total)
        (column,) = space.outer
        shape = (self.chunks, column.size)
        type_ = replace(value.type, shape=shape, layout=contiguous(shape))
        chunk, row = Axis("chunk", self.chunks), Axis("row", self.rows // self.chunks)
        zeros = Value(f"{value.name}.zeros", type_)
        axes = (replace(chunk), Axis("column", column.size))
        yield Pointwise(results=(zeros,), axes=axes, bodies=(const(0.0, f32),), origin=total.origin)
        point = add(mul(symbol(chunk.name), row.size), symbol(row.name))
        mapping: dict[str, Size] = collapsed_axes((*total.axes, *total.reduce_axes))
        mapping |= divided(point, space.inner) | {column.name: symbol("column")}
        partial = Value(f"{value.name}.chunks", type_)
        yield Scatter(
            results=(partial,),
            base=zeros.name,
            axes=(chunk, row, axes[1]),
            index=(symbol(chunk.name), symbol("column")),
            body=substitute_expr(total.bodies[0], mapping),
            mode="add",
            origin=total.origin,
        )
        own = tuple(symbol(axis.name) for axis in total.axes if axis.size != 1)
        load = Load(partial.name, element_of(partial, (symbol(chunk.name), *own)), f32)
        yield replace(total, reduce_axes=(chunk,), bodies=(load,))


class _Finder:
    """Finds the sums over columns of matrices whose rows are reduced too."""

    def __init__(self, graph: LoopGraph, context: PassContext) -> None:
        self._graph = graph
        self._context = context
        self._readers = readers_by_value(graph)
        self._types = {name: value.type for name, value in graph.values().items()}
        self._position = {
            value.name: position
            for position, operation in enumerate(graph.operations)
            for value in operation.results
        }
        self._overwritten = overwritten_names(graph)

    def columns(self) -> list[_Column]:
        """Return the sums in program order."""
        found = [
            self._column(position, operation)
            for position, operation in enumerate(self._graph.operations)
            if isinstance(operation, Reduction)
        ]
        return [column for column in found if column is not None]

    def _column(self, position: int, total: Reduction) -> _Column | None:
        """Return a sum over columns that is added up in the loop over rows; ``None`` for another."""
        machine = self._machine(total)
        sizes = _static(total)
        if machine is None or sizes is None or len(sizes[0]) != 1 or not _is_sum(total):
            return None
        (length,), rows = sizes[0], prod(sizes[1])
        chunks = _chunks(rows, _CHUNKS * machine.model.threads)
        whole = [name for name in total.reads if self._is_matrix(name, rows, length)]
        column = symbol(space_of(total).outer[0].name)
        if any(load.buffer in whole and load.index[-1] != column for load in loads(*total.bodies)):
            return None
        saved = sum(self._types[name].dtype.itemsize for name in whole) * rows * length
        if chunks < 2 * machine.model.threads or saved < _MIN_BYTES or self._overwritten & {*total.reads}:
            return None
        if _CACHE_SHARE * length * f32.itemsize > machine.model.l2_bytes:
            return None
        reduced = [
            self._position[each.name]
            for name in self._computed_of(whole, rows, length)
            for each in self._readers[name]
            if each is not total and _reduces_rows(each, name, rows, length)
        ]
        if not reduced:
            return None
        first = max(position, min(reduced))
        return _Column(total, rows, chunks, first) if self._can_move(position, first) else None

    def _can_move(self, start: int, end: int) -> bool:
        """Return whether the operation at ``start``, and those that read its results, may run after that at ``end``."""
        if start < end and self._overwritten:
            return False
        moved = {value.name for value in self._graph.operations[start].results}
        for position in range(start + 1, end + 1):
            operation = self._graph.operations[position]
            if not moved.intersection(operation.reads):
                continue
            fixed = operation.token or any(value.replaces is not None for value in operation.results)
            pure = isinstance(operation, Pointwise | Reduction | View) and not fixed
            if position == end or not pure:
                return False
            moved.update(value.name for value in operation.results)
        return True

    def _machine(self, operation: Operation) -> Capabilities | None:
        """Return the capabilities of a CPU with several threads or one; ``None`` for another device."""
        machine = self._context.machine(operation.results[0].type.device)
        cpu = machine is not None and not machine.is_gpu and not machine.max_tile_elements
        return machine if cpu else None

    def _computed_of(self, names: Sequence[str], rows: int, length: int) -> list[str]:
        """Return matrices, those that they are computed of point by point, and those computed of any of them."""
        found = list(dict.fromkeys(names))
        for name in found:
            loops = [each for each in self._readers[name] if isinstance(each, Pointwise)]
            near = [each.name for each in loops]
            position = self._position.get(name)
            if position is not None and isinstance(self._graph.operations[position], Pointwise):
                near += self._graph.operations[position].reads
            found += [each for each in near if each not in found and self._is_matrix(each, rows, length)]
        return found

    def _is_matrix(self, name: str, rows: int, length: int) -> bool:
        """Return whether a value has the elements of a matrix, each row of which is contiguous."""
        shape, strides = self._types[name].shape, self._types[name].layout.strides
        static = [size for size in shape if isinstance(size, int)]
        return (
            len(static) == len(shape) > 1
            and prod(static) == rows * length
            and static[-1] == length
            and strides[-1] == 1
        )


def _is_sum(operation: Reduction) -> bool:
    """Return whether an operation is one sum of f32 whose summands have no sums inside."""
    return (
        operation.combiner == _SUM
        and operation.results[0].type.dtype == f32
        and not nested_reductions(*operation.bodies)
        and operation.results[0].replaces is None
    )


def _reduces_rows(operation: Operation, name: str, rows: int, length: int) -> bool:
    """Return whether an operation reduces each row of the matrix called ``name``."""
    if not isinstance(operation, Reduction):
        return False
    sizes = _static(operation)
    if sizes is None or prod(sizes[0]) != rows or sizes[1] != [length]:
        return False
    point = symbol(space_of(operation).inner[0].name)
    return all(load.index[-1] == point for load in loads(*operation.bodies) if load.buffer == name)


def _static(operation: Operation) -> tuple[list[int], list[int]] | None:
    """Return the sizes of outer and inner axes; ``None`` where one is symbolic."""
    space = space_of(operation)
    outer, inner = _ints(space.outer), _ints(space.inner)
    return None if outer is None or inner is None else (outer, inner)


def _ints(axes: Sequence[Axis]) -> list[int] | None:
    """Return the sizes of axes; ``None`` where one is symbolic."""
    sizes = [axis.size for axis in axes if isinstance(axis.size, int)]
    return sizes if len(sizes) == len(axes) else None


def _chunks(rows: int, limit: int) -> int:
    """Return the most chunks of at least ``_MIN_ROWS`` rows that divide all rows, up to ``limit``."""
    limit = min(limit, rows // _MIN_ROWS)
    return next((count for count in range(limit, 0, -1) if rows % count == 0), 0)
