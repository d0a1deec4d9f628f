"""Sums over the rows and over the columns of one matrix in one kernel, which reads the matrix once.

The gradient of a normalisation needs both: two sums over each row for the gradient of its elements, and sums over all
rows for those of weights and biases. A thread block takes a chunk of rows, one after another; it sums each in its
registers and adds the row's terms to sums of its own for every column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar

from litz_ir.dtypes import f32
from litz_ir.fused import Decision
from litz_ir.loops import Axis, LoopGraph, NamedCombiner, Operation, Pointwise, Reduction
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, Load, NestedReduction, loads, nested_reductions, substitute_expr, transform
from litz_ir.symbols import Size, add, free_symbols, mul, symbol
from litz_ir.target import Capabilities, DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import next_power_of_two
from litz_scheduler.analysis.cost_model import max_cluster_size
from litz_scheduler.analysis.graph_facts import (
    output_names,
    overwritten_names,
    readers_by_value,
)
from litz_scheduler.analysis.iteration_space import divided, space_of
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.reductions.chunks_of_rows import chunks_of_rows, points_of
from litz_scheduler.reductions.split_reduction import Division, in_two_steps
from litz_scheduler.schedules.row_cluster import row_cluster

_SUM = NamedCombiner("sum")

_MAX_ROW = 4096
"""Elements of a row, or of a thread block's part of it, up to which its values and the sums of its columns stay in
registers, for any number of sums over columns."""

_MAX_SUMS = 16384
"""Most sums that the registers of a thread block hold where its part is longer: the elements of the part, as a power of
two, times the number of sums over columns."""

_LEAST_GAIN = 4
"""Least bytes of columns that need not be read again, as a multiple of those of the sums of all chunks."""

_ROW_POINT = "row"
"""Name of the axis of sums over a row."""


@dataclass(frozen=True, slots=True)
class RowAndColumnSums:
    """Compute on a GPU sums over rows inside the loop over chunks of rows that sums over columns are split into."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """Thresholds."""
    name: str = "row-and-column-sums"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "gpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        done: set[str] = set()
        while True:
            finder = _Finder(data, context, self.options)
            found = next((each for each in finder.matrices() if each.name not in done), None)
            if found is None:
                return data
            done.add(found.name)
            data = data.with_operations(tuple(found.operations(data)))
            note = f"{found.chunks} chunks of {found.rows // found.chunks} rows"
            note += f", which clusters of {found.cluster} divide" if found.cluster > 1 else ""
            for column in (*found.columns, *found.later):
                context.decide(Decision("split", column.name, "split", reasons.SPLIT_ROWS, note=note))


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A matrix of which elements are computed from sums over rows, and sums over its columns."""

    rows: int
    """The number of rows."""
    length: int
    """The number of elements of a row."""
    cluster: int
    """The thread blocks that divide a row."""
    chunks: int
    """The number of chunks of rows, a divisor of ``rows``."""
    elements: tuple[Pointwise, ...]
    """Operations over all elements that read the sums over rows, in program order."""
    sums: Mapping[str, Reduction]
    """Sums over rows, by the names of their results."""
    inlined: Mapping[str, Pointwise]
    """Values of all elements, or of all rows, that only operations of the matrix read."""
    columns: tuple[Reduction, ...]
    """Sums over columns that read no result of ``elements``."""
    later: tuple[Reduction, ...]
    """Sums over columns that do."""

    @property
    def name(self) -> str:
        """The name of the first operation over all elements."""
        return self.elements[0].name

    def operations(self, graph: LoopGraph) -> Iterator[Operation]:
        """Yield the operations of the graph, with those of the matrix rewritten."""
        steps = {each.name: self._steps(each) for each in (*self.columns, *self.later)}
        started: set[str] = set()
        for operation in graph.operations:
            if operation.name in self.sums or operation.name in self.inlined:
                continue
            if operation.name == self.name:
                for column in self.columns:
                    if column.name not in started:
                        yield steps[column.name][0]
                        started.add(column.name)
            if operation in self.elements:
                assert isinstance(operation, Pointwise), "elements are pointwise"
                yield replace(operation, bodies=tuple(map(self._expanded, operation.bodies)))
            elif operation.name in steps:
                first, second = steps[operation.name]
                yield from (second,) if operation.name in started else (first, second)
                started.add(operation.name)
            else:
                yield operation

    def _steps(self, column: Reduction) -> tuple[Reduction, Reduction]:
        """Return the sums over the rows of each chunk, and the sums of these."""
        axes = space_of(column).inner
        split, inner = (
            Axis(f"{axes[0].name}_split", self.chunks),
            Axis(axes[0].name, self.rows // self.chunks),
        )
        row = add(mul(symbol(split.name), inner.size), symbol(inner.name))
        unit: dict[str, Size] = {axis.name: 0 for axis in column.reduce_axes}
        mapping = unit | divided(row, axes)
        bodies = tuple(map(self._expanded, column.bodies))
        return in_two_steps(replace(column, bodies=bodies), Division((split,), (inner,), mapping), True)

    def _expanded(self, body: Expr) -> Expr:
        """Return a body that computes the sums over rows and the inlined values itself."""

        def visit(node: Expr) -> Expr:
            if isinstance(node, Load) and node.buffer in self.inlined:
                other = self.inlined[node.buffer]
                at = {axis.name: term for axis, term in zip(other.axes, node.index, strict=True)}
                return self._expanded(substitute_expr(other.bodies[0], at))
            if isinstance(node, Load) and node.buffer in self.sums:
                total = self.sums[node.buffer]
                at = {axis.name: term for axis, term in zip(total.axes, node.index, strict=True)}
                at |= {axis.name: 0 for axis in total.reduce_axes}
                at[space_of(total).inner[0].name] = symbol(_ROW_POINT)
                summand = self._expanded(substitute_expr(total.bodies[0], at))
                return NestedReduction(((_ROW_POINT, self.length),), summand)
            return node

        return transform(body, visit)


class _Finder:
    """Finds the matrices of a graph."""

    def __init__(self, graph: LoopGraph, context: PassContext, options: SchedulerOptions) -> None:
        self._graph = graph
        self._options = options
        self._context = context
        self._readers = readers_by_value(graph)
        self._position = {
            value.name: position
            for position, operation in enumerate(graph.operations)
            for value in operation.results
        }
        self._returned_or_overwritten = output_names(graph) | overwritten_names(graph)
        self._values = graph.values()

    def matrices(self) -> Iterator[_Matrix]:
        """Yield the matrices that one kernel computes with their sums over rows and columns."""
        for operation in self._graph.operations:
            if isinstance(operation, Pointwise) and self._machine(operation) is not None:
                found = self._matrix(operation)
                if found is not None:
                    yield found

    def _machine(self, operation: Operation) -> Capabilities | None:
        """Return the capabilities of a GPU whose thread blocks sum rows in a tile; ``None`` for another device."""
        machine = self._context.machine(operation.results[0].type.device)
        tiles = (
            machine is not None and machine.is_gpu and machine.nested_reductions and machine.combines("sum")
        )
        return machine if tiles else None

    def _matrix(self, operation: Pointwise) -> _Matrix | None:
        """Return the matrix whose elements an operation is the first to compute from sums over rows."""
        sizes = tuple(axis.size for axis in space_of(operation).outer)
        known = [size for size in sizes if isinstance(size, int)]
        if len(sizes) < 2 or len(known) != len(sizes):
            return None
        *heads, length = known
        sums = {
            load.buffer: total
            for load in loads(*operation.bodies)
            if (total := self._sum_of_row(load, operation)) is not None
        }
        elements = self._elements(sums, sizes)
        if not elements or elements[0] is not operation:
            return None
        matrix = _Matrix(prod(heads), length, 1, 1, elements, sums, {}, (), ())
        return self._with_columns(matrix, sizes)

    def _divided(self, matrix: _Matrix, inside: Sequence[Pointwise], columns: int) -> _Matrix | None:
        """Return the matrix with its chunks and the thread blocks that divide a row, for so many sums over columns;
        ``None`` where no thread blocks hold a row, or there are too few rows."""
        machine = self._machine(matrix.elements[0])
        assert machine is not None, "only operations on GPUs are asked about"
        members = (*matrix.sums.values(), *matrix.elements, *inside)
        read = {name for each in members for name in each.reads} - {each.name for each in members}
        whole = (self._values[name].type.dtype.itemsize for name in read if self._is_whole(name, matrix))
        limit = max_cluster_size(machine, self._options)
        cluster = row_cluster(matrix.length, max(whole, default=1), columns, limit)
        chunks, part = (
            chunks_of_rows(matrix.rows, matrix.length, machine, cluster),
            -(-matrix.length // cluster),
        )
        if not chunks or part > min(_MAX_SUMS, machine.max_tile_elements):
            return None
        if part > _MAX_ROW and next_power_of_two(part) * columns > _MAX_SUMS:
            return None
        return replace(matrix, cluster=cluster, chunks=chunks)

    def _sum_of_row(self, load: Load, reader: Pointwise) -> Reduction | None:
        """Return the sum over the last axis of ``reader`` whose result a load reads at the row of each point."""
        total = self._producer(load.buffer)
        if (
            not isinstance(total, Reduction)
            or not _is_sum(total)
            or load.buffer in self._returned_or_overwritten
        ):
            return None
        *heads, last = space_of(reader).outer
        space = space_of(total)
        same = [axis.size for axis in space.outer] == [axis.size for axis in heads]
        if not same or [axis.size for axis in space.inner] != [last.size]:
            return None
        at = iter(symbol(axis.name) for axis in heads)
        own = tuple(0 if axis.size == 1 else next(at) for axis in total.axes)
        return total if load.index == own and not nested_reductions(*total.bodies) else None

    def _elements(self, sums: Mapping[str, Reduction], sizes: Sequence[Size]) -> tuple[Pointwise, ...]:
        """Return all readers of sums over rows, in program order; none where one is no loop over all elements."""
        readers = {each.name: each for name in sums for each in self._readers[name]}
        found = []
        for each in sorted(readers.values(), key=lambda each: self._position[each.name]):
            if not isinstance(each, Pointwise) or tuple(a.size for a in space_of(each).outer) != tuple(sizes):
                return ()
            read = {load.buffer for load in loads(*each.bodies) if self._sum_of_row(load, each) is not None}
            if {load.buffer for load in loads(*each.bodies)} & sums.keys() != read & sums.keys():
                return ()
            found.append(each)
        return tuple(found)

    def _with_columns(self, matrix: _Matrix, sizes: Sequence[Size]) -> _Matrix | None:
        """Return the matrix with the sums over columns that read the same elements; ``None`` without any."""
        own = {value.name for each in matrix.elements for value in each.results}
        computing: tuple[Pointwise | Reduction, ...] = (*matrix.sums.values(), *matrix.elements)
        inside = self._inside(computing, sizes)
        if any(self._sums_rows(name, matrix) for each in (*computing, *inside) for name in each.reads):
            return None
        read = {name for each in (*computing, *inside) for name in each.reads if self._is_whole(name, matrix)}
        start = self._position[matrix.name]
        needed = {name for each in matrix.elements for name in each.reads} - own
        if any(self._position.get(name, -1) >= start for name in needed):
            return None  # an element that needs what is computed from another one is in a kernel of its own
        dimensions = self._column_dimensions((*computing, *inside), matrix)
        columns: list[Reduction] = []
        later: list[Reduction] = []
        for name in sorted(read | own):
            for each in self._readers[name]:
                if not isinstance(each, Reduction) or not _is_sum(each) or each in (*columns, *later):
                    continue
                if not self._sums_columns(each, matrix, dimensions):
                    continue
                others = [other for other in each.reads if other not in own]
                if all(self._position.get(other, -1) < start for other in others):
                    (later if own.intersection(each.reads) else columns).append(each)
        divided = self._divided(matrix, inside, len((*columns, *later))) if columns else None
        if divided is None or not self._pays((*columns, *later), divided):
            return None
        columns.sort(key=lambda each: self._position[each.name])
        members = (*matrix.sums.values(), *matrix.elements, *columns, *later)
        inlined = self._inlined(members, sizes)
        return replace(divided, inlined=inlined, columns=tuple(columns), later=tuple(later))

    def _is_whole(self, name: str, matrix: _Matrix) -> bool:
        """Return whether a value has an element for each of the matrix."""
        return points_of(self._values[name].type) == matrix.rows * matrix.length

    def _sums_rows(self, name: str, matrix: _Matrix) -> bool:
        """Return whether a value is a sum over rows as long as the matrix's that none of its loops computes.

        The kernel of that sum has one row a thread block, and all loops over the same rows are fused into it.
        """
        producer = self._producer(name)
        if name in matrix.sums or not isinstance(producer, Reduction):
            return False
        space = space_of(producer)
        outer = [axis.size for axis in space.outer if isinstance(axis.size, int)]
        known = len(outer) == len(space.outer) and prod(outer) == matrix.rows
        return known and [axis.size for axis in space.inner] == [matrix.length]

    def _column_dimensions(
        self, operations: Sequence[Pointwise | Reduction], matrix: _Matrix
    ) -> Mapping[str, frozenset[int]]:
        """Return, for each value with an element for each of the matrix, the dimensions along which its columns lie."""
        found: dict[str, frozenset[int]] = {}
        for each in operations:
            space = space_of(each)
            axis = space.inner[0] if isinstance(each, Reduction) else space.outer[-1]
            for load in loads(*each.bodies):
                if self._is_whole(load.buffer, matrix):
                    found.setdefault(load.buffer, _dimensions(load, axis))
            if each in matrix.elements:
                position = frozenset({each.axes.index(axis)})
                found.update({value.name: position for value in each.results})
        return found

    def _sums_columns(
        self, operation: Reduction, matrix: _Matrix, dimensions: Mapping[str, frozenset[int]]
    ) -> bool:
        """Return whether a sum runs over the columns of the matrix; one over the rows of a square matrix does not."""
        space = space_of(operation)
        if operation.name in matrix.sums or len(space.outer) != 1:
            return False
        (axis,) = space.outer
        along = (
            _dimensions(load, axis) == dimensions[load.buffer]
            for load in loads(*operation.bodies)
            if load.buffer in dimensions
        )
        static = [each.size for each in space.inner if isinstance(each.size, int)]
        return (
            axis.size == matrix.length
            and len(static) == len(space.inner)
            and prod(static) == matrix.rows
            and all(along)
        )

    def _pays(self, columns: Sequence[Reduction], matrix: _Matrix) -> bool:
        """Return whether what columns need not read again is much more than the sums of all chunks."""
        read = {name for each in columns for name in each.reads if self._is_whole(name, matrix)}
        saved = matrix.rows * sum(self._values[name].type.dtype.itemsize for name in read)
        stored = matrix.chunks * len(columns) * f32.itemsize
        return saved >= _LEAST_GAIN * stored

    def _inside(self, members: Sequence[Operation], sizes: Sequence[Size]) -> list[Pointwise]:
        """Return the operations over all elements, or all rows, that ``members`` read, also by others of them."""
        found: dict[str, Pointwise] = {}
        stack = [name for each in members for name in each.reads]
        own = {each.name for each in members}
        while stack:
            producer = self._producer(stack.pop())
            if isinstance(producer, Pointwise) and producer.name not in {
                *found,
                *own,
                *self._returned_or_overwritten,
            }:
                own_sizes = tuple(axis.size for axis in space_of(producer).outer)
                if own_sizes in (tuple(sizes), tuple(sizes[:-1])) and len(producer.results) == 1:
                    found[producer.name] = producer
                    stack += producer.reads
        return list(found.values())

    def _inlined(self, members: Sequence[Operation], sizes: Sequence[Size]) -> dict[str, Pointwise]:
        """Return the operations over all elements, or all rows, that only ``members``, and each other, read. A thread
        block computes the value of a row once."""
        found = {each.name: each for each in self._inside(members, sizes)}
        own = {each.name for each in members}
        while True:
            outside = [
                name for name in found if any(e.name not in {*found, *own} for e in self._readers[name])
            ]
            if not outside:
                return found
            for name in outside:
                del found[name]

    def _producer(self, name: str) -> Operation | None:
        """Return the operation that computes a value; ``None`` for an input."""
        position = self._position.get(name)
        return None if position is None else self._graph.operations[position]


def _dimensions(load: Load, axis: Axis) -> frozenset[int]:
    """Return the dimensions of a load's value whose index varies along an axis."""
    return frozenset(k for k, term in enumerate(load.index) if axis.name in free_symbols(term))


def _is_sum(operation: Reduction) -> bool:
    """Return whether an operation is one sum of f32."""
    return operation.combiner == _SUM and operation.results[0].type.dtype == f32
