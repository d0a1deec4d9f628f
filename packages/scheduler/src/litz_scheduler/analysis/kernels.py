"""Construction of a kernel's loops from a fusion group: values become expressions, indices become element offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from litz_ir.dtypes import DType
from litz_ir.fused import Group, Member, StorageClass
from litz_ir.loops import Axis, Operation, Pointwise, Reduction, Scan, Scatter, TensorType, Value
from litz_ir.plan import Accumulate, Phase, ScanStore, ScratchArray, Statement, Store
from litz_ir.scalar import Expr, Load, Scalar, loads, map_indirects, substitute_expr, transform
from litz_ir.symbols import Simplifier, Size, SymbolTable, coefficient, symbol
from litz_ir.target import Capabilities
from litz_scheduler.analysis.cost import body_cost, estimate, points
from litz_scheduler.analysis.fusion_candidate import position_in_row, row_point
from litz_scheduler.analysis.graph_facts import axis_ranges, element_of
from litz_scheduler.analysis.iteration_space import collapsed_axes
from litz_scheduler.analysis.loop_order import (
    LoopNest,
    adjoin_transposed,
    collapse,
    map_statements,
    order_axes,
    order_tiled,
)
from litz_scheduler.analysis.register_tiles import with_register_tile
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class KernelBody:
    """The loops of a kernel, with buffers under their names in the graph."""

    nest: LoopNest
    """The loops and their statements."""
    scratch: tuple[ScratchArray, ...]
    """Arrays private to one outer point."""


def build_kernel_body(
    group: Group,
    operations: Mapping[str, Operation],
    type_of: Callable[[str], TensorType],
    capabilities: Capabilities,
    symbols: SymbolTable,
    options: SchedulerOptions,
) -> KernelBody:
    """Return the loops of a group: pointwise operations, reductions, scans and sums of chunks, or one scan or scatter.

    ``type_of`` gives the type of a value as it is in memory.
    """
    first = operations[group.members[0].operation]
    if isinstance(first, Scan) and not group.members[0].bodies:
        return _scan(first, type_of, symbols)
    if isinstance(first, Scatter) and len(group.members) == 1:
        return _scatter(first, type_of, symbols)
    return _KernelBodyBuilder(group, operations, type_of, capabilities, symbols, options).build()


class _Offsets:
    """Rewrites logical indices to element offsets in bodies over the same axes; shared nodes are rewritten once."""

    def __init__(
        self, type_of: Callable[[str], TensorType], axes: tuple[Axis, ...], symbols: SymbolTable
    ) -> None:
        self._type_of = type_of
        self._simplifier = Simplifier(axis_ranges(axes, symbols))
        self._memo: dict[Any, Any] = {}

    def element(self, name: str, index: Sequence[Size]) -> Size:
        """Return the offset of an element of a value."""
        return self._simplifier.simplify(self._type_of(name).layout.element(index))

    def body(self, body: Expr) -> Expr:
        """Return the body with element offsets in its loads."""
        return transform(body, self._visit, memo=self._memo)

    def term(self, term: Size) -> Size:
        """Return the term with element offsets in the loads of its indirect indices."""
        return map_indirects(term, lambda atom: atom.of(self.body(atom.value)))

    def _visit(self, node: Expr) -> Expr:
        if isinstance(node, Load) and not node.buffer.startswith(_SCRATCH_PREFIX):
            return Load(node.buffer, (self.element(node.buffer, node.index),), node.dtype)
        return node


_SCRATCH_PREFIX = "scratch:"
"""Prefix of names of scratch arrays while a kernel is built; no graph value has it."""


class _KernelBodyBuilder:
    def __init__(
        self,
        group: Group,
        operations: Mapping[str, Operation],
        type_of: Callable[[str], TensorType],
        capabilities: Capabilities,
        symbols: SymbolTable,
        options: SchedulerOptions,
    ) -> None:
        self.options = options
        self.group = group
        self.operations = operations
        self.type_of = type_of
        self.symbols = symbols
        self.offsets = _Offsets(type_of, group.outer + group.inner, symbols)
        self.storage_classes = dict(group.storage_classes)
        self.producer = {v.name: m for m in group.members for v in operations[m.operation].results}
        self.resolved: defaultdict[int, dict[Any, Any]] = defaultdict(dict)
        # With scratch arrays only inner axes are vectorised, which makes loads contiguous along outer axes strided.
        self.scratch_left = 0 if self._is_contiguous_outside() else capabilities.scratch_bytes
        self.reload = capabilities.scratch_bytes > 0
        # A device with thread blocks tiles all outer axes by itself.
        self.prefers_tiles = not capabilities.max_tile_elements
        self.panel_columns = capabilities.panel_columns
        self.vector_bytes = capabilities.model.vector_bytes
        self.scratch: dict[str, ScratchArray] = {}

    def build(self) -> KernelBody:
        self._reserve_rows()
        last = max((m.phase for m in self.group.members), default=0) + 1
        outer: list[list[Statement]] = [[] for _ in range(last + 1)]
        inner: list[list[Statement]] = [[] for _ in range(last + 1)]
        for member in self.group.members:
            self._emit(member, outer, inner)
        phases: list[Phase] = []
        for k in range(last + 1):
            if outer[k]:
                phases.append(Phase((), tuple(outer[k])))
            if inner[k]:
                phases.append(Phase(self.group.inner, tuple(inner[k])))
        nest = LoopNest(self.group.outer, tuple(phases))
        ordered = order_tiled(nest, self.panel_columns)
        if ordered is None:
            ordered = order_axes(nest, self.symbols) if self.options.order_loops else nest
        nest = collapse(ordered)
        if self.options.order_loops and self.prefers_tiles:
            nest = adjoin_transposed(nest)
        if self._has_register_tiles():
            nest = with_register_tile(nest, self.symbols, self.vector_bytes)
        return KernelBody(nest, tuple(self.scratch.values()))

    def _has_register_tiles(self) -> bool:
        """Return whether matmuls of few rows may be computed in tiles, whose sums depend on the number of rows."""
        options = self.options
        return (
            options.few_rows_bytes > 0
            and not options.batch_invariant
            and self.prefers_tiles
            and not self.scratch
        )

    def _is_contiguous_outside(self) -> bool:
        """Return whether loads are more often contiguous along the outer axes than along the inner ones."""
        balance = 0
        for load in loads(*(body for member in self.group.members if member.inner for body in member.bodies)):
            if load.buffer not in self.producer:
                offset = self.offsets.element(load.buffer, load.index)
                balance += any(coefficient(offset, axis.name) == 1 for axis in self.group.outer)
                balance -= any(coefficient(offset, axis.name) == 1 for axis in self.group.inner)
        return balance > 0

    def _emit(self, member: Member, outer: list[list[Statement]], inner: list[list[Statement]]) -> None:
        operation = self.operations[member.operation]
        if isinstance(operation, Reduction):
            values = tuple(self._finish(body, member.phase) for body in member.bodies)
            results = tuple((v.name, v.type.dtype) for v in operation.results)
            inner[member.phase].append(Accumulate(results, operation.combiner, values))
            for value in operation.results:
                if self.storage_classes[value.name] == "store":
                    read = Scalar(value.name, value.type.dtype)
                    element = self.offsets.element(value.name, element_of(value, member.index))
                    outer[member.phase + 1].append(Store(value.name, element, read))
            return
        if isinstance(operation, Scan):
            targets = tuple(self._scan_target(value.name, member) for value in operation.results)
            values = tuple(self._finish(body, member.phase) for body in member.bodies)
            inner[member.phase].append(ScanStore(operation.combiner, values, targets))
            return
        if isinstance(operation, Scatter):
            summand = self._finish(member.bodies[0], member.phase)
            element = self._element(operation.name, member)
            inner[member.phase].append(Store(operation.name, element, summand, operation.mode))
            return
        assert isinstance(operation, Pointwise)
        lists = inner if member.inner else outer
        for value, body in zip(operation.results, member.bodies, strict=True):
            storage_class = self.storage_classes[value.name]
            if storage_class == "store":
                body_value = self._finish(body, member.phase)
                lists[member.phase].append(Store(value.name, self._element(value.name, member), body_value))
            elif storage_class == "scratch" and self._reserve_scratch(value.name, value.type.dtype):
                body_value = self._finish(body, member.phase)
                lists[member.phase].append(
                    Store(_SCRATCH_PREFIX + value.name, self._scratch_offset(), body_value)
                )

    def _reserve_rows(self) -> None:
        """Add the scratch arrays of rows that are read at other points and of scans, which cannot be recomputed.

        Fusion left them enough scratch memory.
        """
        elsewhere = {
            load.buffer
            for member in self.group.members
            for load in loads(*member.bodies)
            if load.buffer in self.producer and load.index != self._written(load.buffer)
        }
        for name, member in self.producer.items():
            scans = isinstance(self.operations[member.operation], Scan)
            if self.storage_classes[name] == "scratch" and (scans or name in elsewhere):
                self._add_scratch(name, self._value(name).type.dtype)

    def _written(self, name: str) -> tuple[Size, ...]:
        """Return the element of a value of the group that is computed at a point."""
        return element_of(self._value(name), self.producer[name].index)

    def _value(self, name: str) -> Value:
        """Return a value that the group defines."""
        results = self.operations[self.producer[name].operation].results
        return next(value for value in results if value.name == name)

    def _scan_target(self, name: str, member: Member) -> tuple[str, Size]:
        """Return the buffer and offset to which a scan stores a result."""
        if name in self.scratch:
            return _SCRATCH_PREFIX + name, self._scratch_offset()
        return name, self._element(name, member)

    def _element(self, name: str, member: Member) -> Size:
        return self.offsets.element(name, member.index)

    def _reserve_scratch(self, name: str, dtype: DType) -> bool:
        """Add a scratch array for a value; return false where the target has too little scratch memory left."""
        if name in self.scratch:
            return True
        nbytes = estimate(points(self.group.inner), self.symbols) * dtype.itemsize
        if not 0 < nbytes <= self.scratch_left:
            return False
        self._add_scratch(name, dtype)
        return True

    def _add_scratch(self, name: str, dtype: DType) -> None:
        count = points(self.group.inner)
        self.scratch_left -= estimate(count, self.symbols) * dtype.itemsize
        self.scratch[name] = ScratchArray(_SCRATCH_PREFIX + name, dtype, count)

    def _scratch_offset(self) -> Size:
        return row_point(self.group.inner)

    def _finish(self, body: Expr, phase: int) -> Expr:
        return self.offsets.body(self._resolve(body, phase))

    def _resolve(self, body: Expr, phase: int) -> Expr:
        """Return the body with loads of the group's own values replaced by registers, scratch or expressions."""

        def visit(node: Expr) -> Expr:
            if isinstance(node, Load) and node.buffer in self.producer:
                return self._read(node, phase)
            return node

        return transform(body, visit, memo=self.resolved[phase])

    def _read(self, load: Load, phase: int) -> Expr:
        member = self.producer[load.buffer]
        operation = self.operations[member.operation]
        if isinstance(operation, Reduction):
            return Scalar(load.buffer, load.dtype)
        if isinstance(operation, Scan) or load.index != self._written(load.buffer):
            return self._read_row(load)
        if member.phase < phase:
            if load.buffer in self.scratch:
                return Load(_SCRATCH_PREFIX + load.buffer, (self._scratch_offset(),), load.dtype)
            stored = self.storage_classes[load.buffer] == "store"
            is_expensive = body_cost(*member.bodies) > self.options.reload_cost
            if stored and self.reload and member.inner and is_expensive:
                return load
        position = [value.name for value in operation.results].index(load.buffer)
        return self._resolve(member.bodies[position], phase)

    def _read_row(self, load: Load) -> Expr:
        """Return a load of a value at any point of its row, which an earlier phase has completed."""
        if load.buffer not in self.scratch:
            return load
        point = position_in_row(self._written(load.buffer), load.index, self.group.inner)
        assert point is not None, "fusion allows no other reads"
        return Load(_SCRATCH_PREFIX + load.buffer, (point,), load.dtype)


def _scan(operation: Scan, type_of: Callable[[str], TensorType], symbols: SymbolTable) -> KernelBody:
    offsets = _Offsets(type_of, (*operation.axes, operation.scan_axis), symbols)
    index: list[Size] = [symbol(axis.name) for axis in operation.axes]
    index.insert(operation.dimension, symbol(operation.scan_axis.name))
    targets = tuple((value.name, offsets.element(value.name, index)) for value in operation.results)
    values = tuple(map(offsets.body, operation.bodies))
    statement = ScanStore(operation.combiner, values, targets)
    nest = LoopNest(operation.axes, (Phase((operation.scan_axis,), (statement,)),))
    return KernelBody(collapse(_without_ones(nest)), ())


def _scatter(operation: Scatter, type_of: Callable[[str], TensorType], symbols: SymbolTable) -> KernelBody:
    """Return the loops of a scatter.

    An axis that is itself the index of a dimension makes no two of its points write to one element: it becomes an
    outer axis and runs in parallel. The other axes run in order inside.
    """
    indices = frozenset(operation.index)
    free = tuple(axis for axis in operation.axes if symbol(axis.name) in indices)
    rest = tuple(axis for axis in operation.axes if axis not in free)
    offsets = _Offsets(type_of, operation.axes, symbols)
    name, index = operation.results[0].name, tuple(map(offsets.term, operation.index))
    statement = Store(name, offsets.element(name, index), offsets.body(operation.body), operation.mode)
    return KernelBody(_without_ones(LoopNest(free, (Phase(rest, (statement,)),))), ())


def _without_ones(nest: LoopNest) -> LoopNest:
    """Return the nest without axes of size 1, except the axis that a scan runs along."""
    scanned = {p.axes[-1] for p in nest.phases if any(isinstance(s, ScanStore) for s in p.statements)}
    dropped = [axis for axis in nest.outer + nest.inner if axis.size == 1 and axis not in scanned]
    mapping = collapsed_axes(dropped)
    return LoopNest(
        tuple(axis for axis in nest.outer if axis not in dropped),
        tuple(
            Phase(
                tuple(axis for axis in phase.axes if axis not in dropped),
                map_statements(phase.statements, mapping),
            )
            for phase in nest.phases
        ),
    )


def single_operation_group(operation: Operation) -> Group:
    """Return a group of one pointwise operation whose results are stored."""
    assert isinstance(operation, Pointwise)
    outer = tuple(axis for axis in operation.axes if axis.size != 1)
    point = collapsed_axes(operation.axes)
    index = tuple(point.get(axis.name, symbol(axis.name)) for axis in operation.axes)
    bodies = tuple(substitute_expr(body, point) for body in operation.bodies)
    writes = tuple(value.name for value in operation.results)
    storage_classes: tuple[tuple[str, StorageClass], ...] = tuple((name, "store") for name in writes)
    member = Member(operation.name, 0, False, index, bodies)
    return Group(operation.name, outer, (), (member,), storage_classes, operation.reads, writes)
