"""From a group to a kernel: values become expressions, logical indices become offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from litz_ir.dtypes import DType
from litz_ir.fused.group import Fate, Group, Member
from litz_ir.loops.nodes import Axis, Operation, Pointwise, Reduction, Scan, Scatter, TensorType
from litz_ir.plan.kernel import Accumulate, Local, Phase, ScanStore, Statement, Store
from litz_ir.scalar.expr import Expr, Indirect, Load, Scalar, map_indirects, substitute_expr, transform
from litz_ir.symbols.simplify import simplify
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size, add, mul, symbol
from litz_ir.target.capabilities import Capabilities
from litz_scheduler.cost.compute import body_cost
from litz_scheduler.cost.traffic import estimate, points
from litz_scheduler.domain import collapsed_axes
from litz_scheduler.graph import axis_ranges
from litz_scheduler.loop_order import Nest, collapse, map_statement, order_axes
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class Body:
    """Loops and their statements over buffers that still carry their graph names."""

    nest: Nest
    locals: tuple[Local, ...]


def build_body(
    group: Group,
    operations: Mapping[str, Operation],
    type_of: Callable[[str], TensorType],
    capabilities: Capabilities,
    symbols: SymbolTable,
    options: SchedulerOptions,
) -> Body:
    """The loops of a group of pointwise operations and reductions, or of one scan or scatter."""
    first = operations[group.members[0].operation]
    if isinstance(first, Scan):
        return _scan(first, type_of, symbols)
    if isinstance(first, Scatter):
        return _scatter(first, type_of, symbols)
    return _Builder(group, operations, type_of, capabilities, symbols, options).build()


def _offsets(
    body: Expr, type_of: Callable[[str], TensorType], axes: tuple[Axis, ...], symbols: SymbolTable
) -> Expr:
    """Logical loads as loads at element offsets."""
    ranges = axis_ranges(axes, symbols)

    def visit(node: Expr) -> Expr:
        if isinstance(node, Load) and not node.buffer.startswith(LOCAL):
            element = type_of(node.buffer).layout.element(node.index)
            return Load(node.buffer, (simplify(element, ranges),), node.dtype)
        return node

    return transform(body, visit)


LOCAL = "local:"
"""Prefix of names of scratch arrays while a kernel is built; no graph value has it."""


class _Builder:
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
        self.axes = group.outer + group.inner
        self.ranges = axis_ranges(self.axes, symbols)
        self.fates = dict(group.fates)
        self.producer = {v.name: m for m in group.members for v in operations[m.operation].results}
        self.memo: dict[tuple[str, int], Expr] = {}
        self.room = capabilities.local_bytes
        self.reload = capabilities.local_bytes > 0
        self.locals: dict[str, Local] = {}

    def build(self) -> Body:
        last = max((m.phase for m in self.group.members), default=0) + 1
        outer: list[list[Statement]] = [[] for _ in range(last + 1)]
        inner: list[list[Statement]] = [[] for _ in range(last + 1)]
        for member in self.group.members:
            self._place(member, outer, inner)
        phases: list[Phase] = []
        for k in range(last + 1):
            if outer[k]:
                phases.append(Phase((), tuple(outer[k])))
            if inner[k]:
                phases.append(Phase(self.group.inner, tuple(inner[k])))
        nest = Nest(self.group.outer, tuple(phases))
        ordered = order_axes(nest, self.symbols) if self.options.order_loops else nest
        return Body(collapse(ordered), tuple(self.locals.values()))

    def _place(self, member: Member, outer: list[list[Statement]], inner: list[list[Statement]]) -> None:
        operation = self.operations[member.operation]
        if isinstance(operation, Reduction):
            values = tuple(self._finish(body, member.phase) for body in member.bodies)
            results = tuple((v.name, v.type.dtype) for v in operation.results)
            inner[member.phase].append(Accumulate(results, operation.combiner, values))
            for value in operation.results:
                if self.fates[value.name] == "store":
                    read = Scalar(value.name, value.type.dtype)
                    outer[member.phase + 1].append(Store(value.name, self._element(value.name, member), read))
            return
        assert isinstance(operation, Pointwise)
        lists = inner if member.inner else outer
        for value, body in zip(operation.results, member.bodies, strict=True):
            fate = self.fates[value.name]
            if fate == "store":
                done = self._finish(body, member.phase)
                lists[member.phase].append(Store(value.name, self._element(value.name, member), done))
            elif fate == "local" and self._local(value.name, value.type.dtype):
                done = self._finish(body, member.phase)
                lists[member.phase].append(Store(LOCAL + value.name, self._local_offset(), done))

    def _element(self, name: str, member: Member) -> Size:
        return simplify(self.type_of(name).layout.element(member.index), self.ranges)

    def _local(self, name: str, dtype: DType) -> bool:
        """Make room for one outer point's values, if the target has any."""
        if name in self.locals:
            return True
        count = points(self.group.inner)
        nbytes = estimate(count, self.symbols) * dtype.itemsize
        if not 0 < nbytes <= self.room:
            return False
        self.room -= nbytes
        self.locals[name] = Local(LOCAL + name, dtype, count)
        return True

    def _local_offset(self) -> Size:
        offset: Size = 0
        for axis in self.group.inner:
            offset = add(mul(offset, axis.size), symbol(axis.name))
        return offset

    def _finish(self, body: Expr, phase: int) -> Expr:
        return _offsets(self._resolve(body, phase), self.type_of, self.axes, self.symbols)

    def _resolve(self, body: Expr, phase: int) -> Expr:
        """The body with what the group itself computes put in place of its loads."""

        def visit(node: Expr) -> Expr:
            if isinstance(node, Load) and node.buffer in self.producer:
                return self._read(node, phase)
            return node

        return transform(body, visit)

    def _read(self, load: Load, phase: int) -> Expr:
        member = self.producer[load.buffer]
        operation = self.operations[member.operation]
        if isinstance(operation, Reduction):
            return Scalar(load.buffer, load.dtype)
        if member.phase < phase:
            if load.buffer in self.locals:
                return Load(LOCAL + load.buffer, (self._local_offset(),), load.dtype)
            stored = self.fates[load.buffer] == "store"
            dear = body_cost(*member.bodies) > self.options.reload_cost
            if stored and self.reload and member.inner and dear:
                return load
        key = (load.buffer, phase)
        found = self.memo.get(key)
        if found is None:
            position = [value.name for value in operation.results].index(load.buffer)
            found = self.memo[key] = self._resolve(member.bodies[position], phase)
        return found


def _scan(operation: Scan, type_of: Callable[[str], TensorType], symbols: SymbolTable) -> Body:
    axes = (*operation.axes, operation.scan_axis)
    ranges = axis_ranges(axes, symbols)
    index: list[Size] = [symbol(axis.name) for axis in operation.axes]
    index.insert(operation.dimension, symbol(operation.scan_axis.name))
    targets = tuple(
        (v.name, simplify(type_of(v.name).layout.element(index), ranges)) for v in operation.results
    )
    values = tuple(_offsets(body, type_of, axes, symbols) for body in operation.bodies)
    statement = ScanStore(operation.combiner, values, targets)
    nest = Nest(operation.axes, (Phase((operation.scan_axis,), (statement,)),))
    return Body(collapse(_without_ones(nest)), ())


def _scatter(operation: Scatter, type_of: Callable[[str], TensorType], symbols: SymbolTable) -> Body:
    """Axes that index the result plainly, each in a dimension of its own, never collide: they become outer axes and run
    in parallel. The others run in order inside."""
    free: list[Axis] = []
    for axis in operation.axes:
        own = [t for t in operation.index if t == symbol(axis.name)]
        others = [
            t
            for t in operation.index
            if not isinstance(t, int) and axis.name in t.free_symbols and t not in own
        ]
        if len(own) == 1 and not others:
            free.append(axis)
    rest = tuple(axis for axis in operation.axes if axis not in free)
    ranges = axis_ranges(operation.axes, symbols)
    result = type_of(operation.results[0].name)
    index = tuple(_offset_term(t, type_of, operation.axes, symbols) for t in operation.index)
    offset = simplify(result.layout.element(index), ranges)
    value = _offsets(operation.body, type_of, operation.axes, symbols)
    statement = Store(operation.results[0].name, offset, value, operation.mode)
    return Body(_without_ones(Nest(tuple(free), (Phase(rest, (statement,)),))), ())


def _offset_term(
    term: Size, type_of: Callable[[str], TensorType], axes: tuple[Axis, ...], symbols: SymbolTable
) -> Size:
    def change(atom: Indirect) -> Size:
        return atom.of(_offsets(atom.value, type_of, axes, symbols))

    return map_indirects(term, change)


def _without_ones(nest: Nest) -> Nest:
    """The nest without axes of one point; a scan keeps the one along which it runs."""
    scanned = {p.axes[-1] for p in nest.phases if any(isinstance(s, ScanStore) for s in p.statements)}
    dropped = [axis for axis in nest.outer + nest.inner if axis.size == 1 and axis not in scanned]
    mapping = collapsed_axes(dropped)
    return Nest(
        tuple(axis for axis in nest.outer if axis not in dropped),
        tuple(
            Phase(
                tuple(axis for axis in phase.axes if axis not in dropped),
                tuple(map_statement(s, mapping) for s in phase.statements),
            )
            for phase in nest.phases
        ),
    )


def single(operation: Operation) -> Group:
    """A group of one pointwise operation whose results are stored."""
    assert isinstance(operation, Pointwise)
    outer = tuple(axis for axis in operation.axes if axis.size != 1)
    own = collapsed_axes(operation.axes)
    index = tuple(own.get(axis.name, symbol(axis.name)) for axis in operation.axes)
    bodies = tuple(substitute_expr(body, own) for body in operation.bodies)
    writes = tuple(value.name for value in operation.results)
    fates: tuple[tuple[str, Fate], ...] = tuple((name, "store") for name in writes)
    member = Member(operation.name, 0, False, index, bodies)
    return Group(operation.name, outer, (), (member,), fates, operation.reads, writes)
