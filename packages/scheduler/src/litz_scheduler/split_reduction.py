"""Reductions to few points in two steps, so that every thread has a part."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from litz_ir.device import Device
from litz_ir.fused.decision import Decision
from litz_ir.loops.layout import contiguous
from litz_ir.loops.nodes import Axis, Kind, LoopGraph, Operation, Reduction, Value
from litz_ir.passes.base import PassContext
from litz_ir.scalar.expr import Load, substitute_expr
from litz_ir.symbols.term import Size, add, mul, symbol
from litz_ir.target.capabilities import Capabilities
from litz_scheduler.cost.compute import body_cost, load_count
from litz_scheduler.cost.traffic import estimate, points
from litz_scheduler.options import SchedulerOptions

SPLIT = ("sum", "prod", "min", "max", "any", "all", "xor", "argmin", "argmax")
"""What combines partial results as it combines elements."""

PARTS = 16
"""The parts wanted for each thread: enough to even out threads of unequal speed."""


@dataclass(frozen=True, slots=True)
class SplitReductions:
    """Reduce the parts of a long reduction first, one beside the other, then what they give."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "split-reductions"
    ulp: int = 64

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        operations: list[Operation] = []
        for operation in data.operations:
            most = self._parts(operation, data, context) if isinstance(operation, Reduction) else 0
            if most < 2:
                operations.append(operation)
                continue
            assert isinstance(operation, Reduction)
            division = _divided(operation.reduce_axes, most)
            if division.parts < 2:
                operations.append(operation)
                continue
            operations += _in_two_steps(operation, division)
            note = f"{division.parts} parts"
            context.decide(Decision("split", operation.name, "split", "split.threads", note=note))
        return data.with_operations(tuple(operations))

    def _parts(self, operation: Reduction, graph: LoopGraph, context: PassContext) -> int:
        """The most parts that pay for a reduction."""
        if not isinstance(operation.combiner, Kind) or operation.combiner.name not in SPLIT:
            return 0
        machine = _machine(operation.results[0].type.device, context)
        if machine is None or machine.block_limit or machine.threads < 2:
            return 0
        outer = estimate(points(operation.axes), graph.symbols)
        inner = points(operation.reduce_axes)
        if outer >= 2 * machine.threads or outer == machine.threads or not isinstance(inner, int):
            return 0
        width = sum(value.type.dtype.itemsize for value in operation.results)
        effort = max(load_count(*operation.bodies) * width, body_cost(*operation.bodies) // 4, 1)
        worthwhile = min(inner // 2, inner * effort // self.options.part_bytes)
        return min(PARTS * machine.threads // max(outer, 1), worthwhile)


def _machine(device: Device, context: PassContext) -> Capabilities | None:
    return next((known for each, known in context.capabilities.items() if each.kind == device.kind), None)


@dataclass(frozen=True, slots=True)
class _Division:
    """Axes as those that tell parts from one another and those inside a part; ``place`` is where a point of them is on
    the axes as they were."""

    between: tuple[Axis, ...]
    within: tuple[Axis, ...]
    place: dict[str, Size]

    @property
    def parts(self) -> int:
        return math.prod(map(_size, self.between))


def _divided(axes: tuple[Axis, ...], most: int) -> _Division:
    """The leading axes divided into up to ``most`` equal parts: several as they are, and a divisor of the next one."""
    count, whole = 1, 0
    while whole < len(axes) and count * _size(axes[whole]) <= most:
        count *= _size(axes[whole])
        whole += 1
    between, rest = axes[:whole], axes[whole:]
    step = next((n for n in range(most // count, 1, -1) if rest and _size(rest[0]) % n == 0), 1)
    if step == 1:
        return _Division(between, rest, {})
    part, inner = Axis(f"{rest[0].name}_part", step), Axis(rest[0].name, _size(rest[0]) // step)
    place: dict[str, Size] = {inner.name: add(mul(symbol(part.name), inner.size), symbol(inner.name))}
    return _Division((*between, part), (inner, *rest[1:]), place)


def _size(axis: Axis) -> int:
    assert isinstance(axis.size, int)
    return axis.size


def _in_two_steps(operation: Reduction, division: _Division) -> tuple[Operation, Operation]:
    """The reduction of each part, whose place is told by the last axes of its results, and that of all parts."""
    axes = (*operation.axes, *division.between)
    shape = tuple(axis.size for axis in axes)
    partial = tuple(
        Value(f"{value.name}.parts", replace(value.type, shape=shape, layout=contiguous(shape)))
        for value in operation.results
    )
    bodies = tuple(substitute_expr(body, division.place) for body in operation.bodies)
    some = replace(operation, results=partial, axes=axes, reduce_axes=division.within, bodies=bodies)
    index = tuple(symbol(axis.name) for axis in axes)
    loads = tuple(Load(value.name, index, value.type.dtype) for value in partial)
    return some, replace(operation, reduce_axes=division.between, bodies=loads)
