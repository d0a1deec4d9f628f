"""Long scans on a GPU in three steps, so that every processor has a part: what each part comes to, the running
combination of these, and a scan of each part that starts with all before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from litz_ir.dtypes import i64
from litz_ir.fused import Decision
from litz_ir.loops import (
    Axis,
    Layout,
    LoopGraph,
    NamedCombiner,
    Operation,
    Reduction,
    Scan,
    Value,
    View,
    contiguous,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, Load, const, index, masked, op, substitute_expr
from litz_ir.symbols import Size, add, floordiv, mod, mul, symbol
from litz_scheduler.cluster_size import CTAS_PER_SM, MIN_COLUMN_TILE
from litz_scheduler.cost import estimate, load_count, points
from litz_scheduler.lookback_scan import will_look_back
from litz_scheduler.options import SchedulerOptions

_COMBINED: Mapping[str, str] = MappingProxyType(
    {"sum": "add", "prod": "mul", "min": "minimum", "max": "maximum"}
)
"""What combines two values of each kind."""


@dataclass(frozen=True, slots=True)
class SplitScans:
    """Scan the parts of a long scan one beside the other. What it reads is read twice."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "split-scans"
    ulp: int = 64

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        operations: list[Operation] = []
        for operation in data.operations:
            parts = self._parts(operation, data, context) if isinstance(operation, Scan) else 1
            if parts > 1:
                assert isinstance(operation, Scan)
                operations += _in_steps(operation, parts)
                context.decide(
                    Decision("split", operation.name, "split", "split.threads", note=f"{parts} parts")
                )
            else:
                operations.append(operation)
        return data.with_operations(tuple(operations))

    def _parts(self, scan: Scan, graph: LoopGraph, context: PassContext) -> int:
        """How many equal parts pay; 1 where the scan stays whole."""
        type_ = scan.results[0].type
        machine, size = context.machine(type_.device), scan.scan_axis.size
        if machine is None or not machine.sm_count or not isinstance(size, int):
            return 1
        if will_look_back(scan, machine, graph.symbols, self.options):
            return 1
        # Narrow floats are combined wide, and rounded where they are shown alone.
        known = isinstance(scan.combiner, NamedCombiner) and scan.combiner.name in _COMBINED
        if not known or len(scan.results) > 1 or type_.dtype.is_low_precision:
            return 1
        together = 1 if type_.layout.strides[scan.dimension] == 1 else MIN_COLUMN_TILE
        programs = -(-estimate(points(scan.axes), graph.symbols) // together)
        nbytes = size * together * max(1, load_count(*scan.bodies)) * type_.dtype.itemsize
        most = min(CTAS_PER_SM * machine.sm_count // max(programs, 1), nbytes // self.options.gpu_split_bytes)
        return next((parts for parts in range(most, 1, -1) if size % parts == 0), 1)


def _in_steps(scan: Scan, parts: int) -> tuple[Operation, ...]:
    """The three steps, and their result as the one that was wanted."""
    (result,), (whole,) = scan.results, scan.bodies
    assert isinstance(scan.scan_axis.size, int) and isinstance(scan.combiner, NamedCombiner)
    part = Axis(f"{scan.scan_axis.name}_part", parts)
    inside = Axis(scan.scan_axis.name, scan.scan_axis.size // parts)
    place = {inside.name: add(mul(symbol(part.name), inside.size), symbol(inside.name))}
    body = substitute_expr(whole, place)
    axes = (*scan.axes, part)

    totals = _between(result, "parts", axes)
    total = Reduction(
        results=(totals,), axes=axes, reduce_axes=(inside,), combiner=scan.combiner, bodies=(body,), origin=scan.origin
    )  # fmt: skip
    ends = _between(result, "ends", axes)
    running = replace(
        scan, results=(ends,), scan_axis=part, dimension=len(scan.axes), bodies=(_at(totals, axes, 0),)
    )
    before = op(_COMBINED[scan.combiner.name], _at(ends, axes, -1), body)
    first = masked(op("gt", index(symbol(part.name)), const(0, i64)), before, body)
    start = masked(op("eq", index(symbol(inside.name)), const(0, i64)), first, body)
    divided = _divided(result, scan.dimension, parts, inside.size)
    at = scan.dimension
    final = replace(
        scan,
        results=(divided,),
        axes=(*scan.axes[:at], part, *scan.axes[at:]),
        scan_axis=inside,
        dimension=at + 1,
        bodies=(start,),
    )
    return total, running, final, _joined(result, divided, at, inside.size)


def _between(result: Value, suffix: str, axes: tuple[Axis, ...]) -> Value:
    """A value for each part."""
    shape = tuple(axis.size for axis in axes)
    return Value(f"{result.name}.{suffix}", replace(result.type, shape=shape, layout=contiguous(shape)))


def _at(value: Value, axes: tuple[Axis, ...], shift: int) -> Expr:
    """What a value holds for this part, or the one before."""
    *outer, part = (symbol(axis.name) for axis in axes)
    return Load(value.name, (*outer, add(part, shift)), value.type.dtype)


def _divided(result: Value, dimension: int, parts: int, inside: Size) -> Value:
    """The result with the dimension that is scanned divided, in the same memory."""
    shape, layout = result.type.shape, result.type.layout
    step = layout.strides[dimension]
    strides = (*layout.strides[:dimension], mul(step, inside), step, *layout.strides[dimension + 1 :])
    sizes = (*shape[:dimension], parts, inside, *shape[dimension + 1 :])
    made: Layout = replace(layout, strides=strides)
    return Value(f"{result.name}.scanned", replace(result.type, shape=sizes, layout=made))


def _joined(result: Value, divided: Value, dimension: int, inside: Size) -> View:
    """The divided result as it was wanted."""
    axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(result.type.shape))
    terms: list[Size] = [symbol(axis.name) for axis in axes]
    point = terms[dimension]
    terms[dimension : dimension + 1] = [floordiv(point, inside), mod(point, inside)]
    return View(results=(result,), base=divided.name, axes=axes, index=tuple(terms))
