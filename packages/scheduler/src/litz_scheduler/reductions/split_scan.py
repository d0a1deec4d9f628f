"""Splitting of long scans on a GPU into three steps, so that all SMs take part.

The steps are the total of each split, a scan of the totals, and a scan of each split that starts from the total of all
splits before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

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
from litz_ir.scalar import Expr, Load, const, index, masked, op, substitute_expr, substitute_params
from litz_ir.symbols import Size, add, floordiv, mod, mul, symbol
from litz_ir.target import DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import estimate, load_count, points
from litz_scheduler.analysis.cost_model import CTAS_PER_SM, MIN_COLUMN_TILE
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.schedules.lookback_scan import will_look_back


@dataclass(frozen=True, slots=True)
class SplitScans:
    """Replace long scans on a GPU by parallel scans of equal splits, which read the input twice."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """``gpu_split_bytes`` bounds the size of a split; ``lookback`` selects scans that are not split."""
    name: str = "split-scans"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "gpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        operations: list[Operation] = []
        for operation in data.operations:
            splits = self._splits(operation, data, context) if isinstance(operation, Scan) else 1
            if splits > 1:
                assert isinstance(operation, Scan)
                operations += _split(operation, splits)
                context.decide(
                    Decision("split", operation.name, "split", reasons.SPLIT_THREADS, note=f"{splits} splits")
                )
            else:
                operations.append(operation)
        return data.with_operations(tuple(operations))

    def _splits(self, scan: Scan, graph: LoopGraph, context: PassContext) -> int:
        """Return the number of equal splits; 1 where the scan is not split."""
        type_ = scan.results[0].type
        machine, size = context.machine(type_.device), scan.scan_axis.size
        if machine is None or not machine.is_gpu or not isinstance(size, int):
            return 1
        if will_look_back(scan, machine, graph.symbols, self.options):
            return 1
        # Low-precision floats accumulate in a wider dtype; values between the steps would be rounded.
        if not _scans_states(scan) or type_.dtype.is_low_precision:
            return 1
        tile = 1 if type_.layout.strides[scan.dimension] == 1 else MIN_COLUMN_TILE
        ctas = -(-estimate(points(scan.axes), graph.symbols) // tile)
        nbytes = size * tile * max(1, load_count(*scan.bodies)) * type_.dtype.itemsize
        limit = min(
            CTAS_PER_SM * machine.model.sm_count // max(ctas, 1), nbytes // self.options.gpu_split_bytes
        )
        return next((splits for splits in range(limit, 1, -1) if size % splits == 0), 1)


def _scans_states(scan: Scan) -> bool:
    """Return whether a scan combines states of one component like elements."""
    if not isinstance(scan.combiner, NamedCombiner) or not scan.combiner.kind.merges_states:
        return False
    return len(scan.results) == 1 and scan.bodies[0].dtype == scan.results[0].type.dtype


def _split(scan: Scan, splits: int) -> tuple[Operation, ...]:
    """Return the three steps, and the view of their result with the shape of the scan's."""
    (result,), (scanned,) = scan.results, scan.bodies
    assert isinstance(scan.scan_axis.size, int) and isinstance(scan.combiner, NamedCombiner)
    split = Axis(f"{scan.scan_axis.name}_split", splits)
    inner = Axis(scan.scan_axis.name, scan.scan_axis.size // splits)
    substitution = {inner.name: add(mul(symbol(split.name), inner.size), symbol(inner.name))}
    body = substitute_expr(scanned, substitution)
    axes = (*scan.axes, split)

    totals = _split_value(result, "totals", axes)
    total = Reduction(
        results=(totals,), axes=axes, reduce_axes=(inner,), combiner=scan.combiner, bodies=(body,), origin=scan.origin
    )  # fmt: skip
    ends = _split_value(result, "ends", axes)
    running = replace(
        scan, results=(ends,), scan_axis=split, dimension=len(scan.axes), bodies=(_at(totals, axes, 0),)
    )
    (merge,) = scan.combiner.kind.definition((body.dtype,)).merge
    before = substitute_params(merge, (_at(ends, axes, -1), body))
    first = masked(op("gt", index(symbol(split.name)), const(0, i64)), before, body)
    start = masked(op("eq", index(symbol(inner.name)), const(0, i64)), first, body)
    divided = _split_result(result, scan.dimension, splits, inner.size)
    at = scan.dimension
    final = replace(
        scan,
        results=(divided,),
        axes=(*scan.axes[:at], split, *scan.axes[at:]),
        scan_axis=inner,
        dimension=at + 1,
        bodies=(start,),
    )
    return total, running, final, _result_view(result, divided, at, inner.size)


def _split_value(result: Value, suffix: str, axes: tuple[Axis, ...]) -> Value:
    """Return a temporary with one element for each split of each row."""
    shape = tuple(axis.size for axis in axes)
    return Value(f"{result.name}.{suffix}", replace(result.type, shape=shape, layout=contiguous(shape)))


def _at(value: Value, axes: tuple[Axis, ...], shift: int) -> Expr:
    """Return the element of the split that is ``shift`` after the current one."""
    *outer, split = (symbol(axis.name) for axis in axes)
    return Load(value.name, (*outer, add(split, shift)), value.type.dtype)


def _split_result(result: Value, dimension: int, splits: int, length: Size) -> Value:
    """Return the result with the scanned dimension divided into splits, with the same memory layout."""
    shape, layout = result.type.shape, result.type.layout
    stride = layout.strides[dimension]
    strides = (*layout.strides[:dimension], mul(stride, length), stride, *layout.strides[dimension + 1 :])
    sizes = (*shape[:dimension], splits, length, *shape[dimension + 1 :])
    new_layout: Layout = replace(layout, strides=strides)
    return Value(f"{result.name}.scanned", replace(result.type, shape=sizes, layout=new_layout))


def _result_view(result: Value, split: Value, dimension: int, length: Size) -> View:
    """Return the view of the divided result that has the shape of the scan's result."""
    axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(result.type.shape))
    terms: list[Size] = [symbol(axis.name) for axis in axes]
    point = terms[dimension]
    terms[dimension : dimension + 1] = [floordiv(point, length), mod(point, length)]
    return View(results=(result,), base=split.name, axes=axes, index=tuple(terms))
