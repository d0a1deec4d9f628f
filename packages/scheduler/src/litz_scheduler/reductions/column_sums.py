"""Sums over the columns of a stored matrix in the kernel that computes its elements, which need not be read again.

The gradient of a bias sums the gradient of an activation, which a matmul reads too. A thread block takes a chunk of
rows of some columns: it computes and stores their elements, and adds them to a partial sum of each column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

from litz_ir.dtypes import f32
from litz_ir.fused import Decision
from litz_ir.loops import Axis, LoopGraph, NamedCombiner, Operation, Pointwise, Reduction, Scan
from litz_ir.passes import PassContext
from litz_ir.scalar import Load, loads, nested_reductions
from litz_ir.symbols import Simplifier, Size, add, mul, symbol
from litz_ir.target import Capabilities, DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.cost_model import CTAS_PER_SM, max_cluster_size
from litz_scheduler.analysis.graph_facts import axis_ranges, overwritten_names, readers_by_value, reads_rows
from litz_scheduler.analysis.iteration_space import collapsed_axes, divided, space_of
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.reductions.chunks_of_rows import chunks_of_rows, points_of
from litz_scheduler.reductions.split_reduction import Division, in_two_steps
from litz_scheduler.schedules.row_cluster import row_cluster

_SUM = NamedCombiner("sum")

_MIN_ROWS, _MAX_ROWS = 16, 64
"""Fewest and most rows of a chunk. Each chunk stores a sum for every column, which another kernel reads. On an H200
GELU's gradient of 12,608 x 3,072 in bf16 with its sums takes 68 us in chunks of 64 rows, 74 of 197, 97 of 788."""

_MIN_BYTES = 1 << 20
"""Fewest bytes that need not be read again: the second kernel takes about as long as to read so much."""

_TILE_COLUMNS = 64
"""Columns of a thread block."""


@dataclass(frozen=True, slots=True)
class ColumnSums:
    """Sum the columns of a stored matrix in chunks of rows, in the kernel that computes its elements, on a GPU."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """Thresholds."""
    name: str = "column-sums"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "gpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        finder = _Finder(data, context, self.options)
        operations: list[Operation] = []
        for operation in data.operations:
            chunks = finder.chunks(operation) if isinstance(operation, Reduction) else 0
            if chunks and isinstance(operation, Reduction):
                operations += _in_chunks(operation, chunks)
                rows = prod(finder.sizes(operation)[1])
                note = f"{chunks} chunks of {rows // chunks} rows"
                context.decide(Decision("split", operation.name, "split", reasons.SPLIT_STORED, note=note))
            else:
                operations.append(operation)
        return data.with_operations(tuple(operations))


def _in_chunks(total: Reduction, chunks: int) -> tuple[Reduction, Reduction]:
    """Return the sums over the rows of each chunk, and the sums of these."""
    axes = space_of(total).inner
    rows = prod(axis.size for axis in axes if isinstance(axis.size, int))
    split, inner = Axis(f"{axes[0].name}_split", chunks), Axis(axes[0].name, rows // chunks)
    row = add(mul(symbol(split.name), inner.size), symbol(inner.name))
    mapping = collapsed_axes(total.reduce_axes) | divided(row, axes)
    return in_two_steps(total, Division((split,), (inner,), mapping), True)


class _Finder:
    """Finds the sums over columns of stored matrices."""

    def __init__(self, graph: LoopGraph, context: PassContext, options: SchedulerOptions) -> None:
        self._graph = graph
        self._options = options
        self._context = context
        self._values = graph.values()
        self._producers = {value.name: each for each in graph.operations for value in each.results}
        self._readers = readers_by_value(graph)
        self._overwritten = overwritten_names(graph)

    def chunks(self, total: Reduction) -> int:
        """Return the chunks of rows that a sum over the columns of a stored matrix is divided into; 0 for another."""
        machine = self._machine(total)
        if machine is None or not self._is_plain_sum(total):
            return 0
        outer, inner = self.sizes(total)
        rows, length = prod(inner), prod(outer)
        stored = [
            load
            for load in loads(*total.bodies)
            if self._reads_matrix(load, total) and self._is_computed(load.buffer, rows, length)
        ]
        if not stored or not self._reads_rows(total):
            return 0
        chunks = self._same_chunks(stored, rows, length, machine) or _chunks(rows, length, machine)
        saved = rows * length * sum(load.dtype.itemsize for load in stored)
        return chunks if saved >= _MIN_BYTES else 0

    def sizes(self, total: Reduction) -> tuple[list[int], list[int]]:
        """Return the sizes of the outer and of the reduced axes; both empty where one is symbolic."""
        space = space_of(total)
        outer = [axis.size for axis in space.outer if isinstance(axis.size, int)]
        inner = [axis.size for axis in space.inner if isinstance(axis.size, int)]
        known = len(outer) == len(space.outer) and len(inner) == len(space.inner)
        return (outer, inner) if known else ([], [])

    def _machine(self, operation: Operation) -> Capabilities | None:
        """Return the capabilities of a GPU whose thread blocks have tiles; ``None`` for another device."""
        machine = self._context.machine(operation.results[0].type.device)
        tiles = machine is not None and machine.is_gpu and machine.max_tile_elements
        return machine if tiles and machine is not None and machine.combines("sum") else None

    def _is_plain_sum(self, total: Reduction) -> bool:
        """Return whether an operation is one sum of f32 over rows of a known number, without sums inside."""
        outer, inner = self.sizes(total)
        return (
            total.combiner == _SUM
            and total.results[0].type.dtype == f32
            and total.results[0].replaces is None
            and not nested_reductions(*total.bodies)
            and bool(outer)
            and bool(inner)
            and 0 not in (*outer, *inner)
        )

    def _reads_matrix(self, load: Load, operation: Operation) -> bool:
        """Return whether a load reads a matrix row after row, each of all columns."""
        space = space_of(operation)
        axes = (*space.inner, *space.outer)
        simplifier = Simplifier(axis_ranges(axes, self._graph.symbols))
        element: Size = 0
        for axis in axes:
            element = add(mul(element, axis.size), symbol(axis.name))
        return simplifier.simplify(self._values[load.buffer].type.layout.element(load.index)) == element

    def _is_computed(self, name: str, rows: int, length: int) -> bool:
        """Return whether a loop computes the elements of a matrix, row after row, from what no reduction gives."""
        producer = self._producers.get(name)
        if (
            not isinstance(producer, Pointwise)
            or len(producer.results) != 1
            or name in self._overwritten
            or producer.results[0].replaces is not None
        ):
            return False
        if not self._reads_rows(producer) or not all(map(self._is_harmless, self._readers[name])):
            return False
        return self._is_independent(producer.reads, rows * length)

    def _is_harmless(self, reader: Operation) -> bool:
        """Return whether a reader of a matrix leaves the loop that computes it to sums over columns."""
        if isinstance(reader, Reduction):
            return self._is_plain_sum(reader) and self._reads_rows(reader)
        return not isinstance(reader, Scan)

    def _is_independent(self, names: Iterable[str], points: int) -> bool:
        """Return whether no reduction over part of a matrix's points gives values, nor what they are computed of.

        The loops of such a matrix are in the kernel that reduces, which has no chunks of rows.
        """
        seen, stack = set(names), list(names)
        while stack:
            producer = self._producers.get(stack.pop())
            if isinstance(producer, Reduction | Scan):
                return False
            if not isinstance(producer, Pointwise) or nested_reductions(*producer.bodies):
                continue
            sizes = [axis.size for axis in producer.axes if isinstance(axis.size, int)]
            if len(sizes) == len(producer.axes) and prod(sizes) == points:
                stack += [name for name in producer.reads if name not in seen]
                seen.update(producer.reads)
        return True

    def _reads_rows(self, operation: Pointwise | Reduction) -> bool:
        """Return whether all loads of an operation are contiguous along its last axis, or do not vary along it."""
        space = space_of(operation)
        axes = (*space.inner, *space.outer)
        return reads_rows(loads(*operation.bodies), axes, self._values, self._graph.symbols)

    def _same_chunks(self, stored: list[Load], rows: int, length: int, machine: Capabilities) -> int:
        """Return the chunks of the kernel that sums rows and columns of what a matrix is computed of; 0 for none."""
        for load in stored:
            producer = self._producers[load.buffer]
            assert isinstance(producer, Pointwise), "a loop computes the matrix"
            read = (each for each in loads(*producer.bodies) if self._reads_matrix(each, producer))
            for each in (producer, *(self._producers.get(found.buffer) for found in read)):
                if isinstance(each, Pointwise) and nested_reductions(*each.bodies):
                    names = {load.buffer for load in loads(*each.bodies)}
                    whole = (self._values[name].type for name in names)
                    widest = max(
                        (value.dtype.itemsize for value in whole if points_of(value) == rows * length),
                        default=1,
                    )
                    cluster = row_cluster(length, widest, 2, max_cluster_size(machine, self._options))
                    return chunks_of_rows(rows, length, machine, cluster)
        return 0


def _chunks(rows: int, length: int, machine: Capabilities) -> int:
    """Return the number of equal chunks of at most ``_MAX_ROWS`` rows, as few as occupy all SMs; 0 where there are
    none, or where the columns suffice."""
    tiles, wanted = -(-length // _TILE_COLUMNS), CTAS_PER_SM * machine.model.sm_count
    found = (rows // n for n in range(_MAX_ROWS, _MIN_ROWS - 1, -1) if rows % n == 0)
    return 0 if tiles >= wanted else next((chunks for chunks in found if chunks * tiles >= wanted), 0)
