"""Merging of two dependent reductions of one tensor into an online reduction that reads it once.

Mean and sum of squared differences become Welford's algorithm; maximum and sum of exponentials become the online
softmax. On a GPU this halves the reads of rows that do not fit in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, nan
from typing import ClassVar

from litz_ir.dtypes import f32, f64
from litz_ir.fused import Decision
from litz_ir.loops import Axis, LoopGraph, NamedCombiner, Operation, Pointwise, Reduction, TensorType, Value
from litz_ir.passes import PassContext
from litz_ir.scalar import Const, Expr, Load, Op, const, op, substitute_expr, where
from litz_ir.symbols import Size, SymbolTable, substitute, symbol
from litz_ir.target import DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import estimate, points
from litz_scheduler.analysis.cost_model import CostModel, ThresholdCosts
from litz_scheduler.analysis.graph_facts import output_names, reads_columns


@dataclass(frozen=True, slots=True)
class OnlineReductions:
    """Merge two dependent reductions of one tensor on a GPU where both would read it from memory."""

    costs: CostModel = field(default_factory=ThresholdCosts)
    """The model that says which rows and columns do not stay in registers."""
    name: str = "online-reductions"
    """The name of the pass."""
    ulp: int = 256
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "gpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        merger = _Merger(data)
        types = {name: value.type for name, value in data.values().items()}
        operations: list[Operation] = []
        for operation in data.operations:
            if isinstance(operation, Reduction) and self._is_long(operation, data.symbols, types, context):
                pair = merger.first_of(operation)
                if pair is not None:
                    position = operations.index(pair.operation)
                    operations[position : position + 1] = pair.merged
                    operations.append(pair.second)
                    merger.known[pair.operation.name] = pair.merged[0]
                    context.decide(Decision("split", operation.name, "merge", reasons.MERGE_ONLINE))
                    continue
            merger.known[operation.name] = operation
            operations.append(operation)
        return data.with_operations(tuple(operations))

    def _is_long(
        self,
        operation: Reduction,
        symbols: SymbolTable,
        types: Mapping[str, TensorType],
        context: PassContext,
    ) -> bool:
        """Return whether an f32 or f64 reduction on a GPU has rows or columns that do not fit in registers."""
        machine = context.machine(operation.results[0].type.device)
        if machine is None or not machine.is_gpu or operation.results[0].type.dtype not in (f32, f64):
            return False
        if not machine.combines("online_softmax") or not machine.combines("welford"):
            return False
        inner = estimate(points(operation.reduce_axes), symbols)
        return self.costs.reads_in_chunks(inner, columns=reads_columns(operation, types))


@dataclass(frozen=True, slots=True)
class _Pair:
    """A merged pair of reductions."""

    operation: Reduction
    """The first reduction."""
    merged: tuple[Operation, ...]
    """The operations that replace the first reduction; the first of them is the online reduction."""
    second: Operation
    """The operation that replaces the second reduction: it reads a result of the online one."""


class _Merger:
    """Finds reductions that can be merged with an earlier one."""

    def __init__(self, graph: LoopGraph) -> None:
        self.known: dict[str, Operation] = {}
        """The operations before the current one, by the name of their first result."""
        self._returned = output_names(graph)

    def first_of(self, second: Reduction) -> _Pair | None:
        """Return the merge of ``second`` with an earlier reduction; ``None`` where there is none."""
        if second.combiner != NamedCombiner("sum"):
            return None
        body = self._expanded(second.bodies[0])
        if not isinstance(body, Op):
            return None
        if body.name == "exp":
            return self._softmax(second, body.args[0])
        if body.name == "mul" and body.args[0] is body.args[1]:
            return self._variance(second, body.args[0])
        return None

    def _expanded(self, body: Expr) -> Expr:
        """Return the body; if it is the load of a pointwise value, the body of that value instead."""
        if isinstance(body, Load):
            producer = self.known.get(body.buffer)
            if isinstance(producer, Pointwise) and len(producer.results) == 1:
                mapping = {axis.name: at for axis, at in zip(producer.axes, body.index, strict=True)}
                return substitute_expr(producer.bodies[0], mapping)
        return body

    def _softmax(self, second: Reduction, inside: Expr) -> _Pair | None:
        match inside:
            case Op(name="sub", args=(element, Load(buffer=name, index=index))):
                first = self._same_elements(name, "max", element, index, second)
                if first is None:
                    return None
                total = Value(
                    f"{second.name}.total", replace(first.results[0].type, dtype=second.bodies[0].dtype)
                )
                merged = replace(
                    first, results=(*first.results, total), combiner=NamedCombiner("online_softmax")
                )
                return _Pair(first, (merged,), _read_sum_of_exponentials(second, total, first))
        return None

    def _variance(self, second: Reduction, difference: Expr) -> _Pair | None:
        match difference:
            case Op(
                name="sub",
                args=(element, Op(name="div", args=(Load(buffer=name, index=index), Const(value=n)))),
            ):
                first = self._same_elements(name, "sum", element, index, second)
                if first is None or points(first.reduce_axes) != n:
                    return None
                if name in self._returned:
                    return None  # the mean times the count may differ from a sum of integers by rounding
                (total,) = first.results
                names = ("mean", "squares", "count")
                mean, squares, count = (Value(f"{total.name}.{name}", total.type) for name in names)
                merged = replace(first, results=(mean, squares, count), combiner=NamedCombiner("welford"))
                sum_ = op("mul", _load(mean, first.axes), const(float(n), total.type.dtype))
                first_sum = Pointwise(results=(total,), axes=first.axes, bodies=(sum_,), origin=first.origin)
                return _Pair(first, (merged, first_sum), _read_result(second, squares, first))
        return None

    def _same_elements(
        self, name: str, kind: str, element: Expr, index: tuple[Size, ...], second: Reduction
    ) -> Reduction | None:
        """Return the reduction ``name`` of the combiner ``kind`` that combines the elements of ``second``.

        Rows must correspond: ``index`` is the row of the first result that ``second`` reads for its own row. ``None``
        for any other value.
        """
        first = self.known.get(name)
        if not isinstance(first, Reduction) or not isinstance(first.combiner, NamedCombiner):
            return None
        if first.combiner.name != kind or first.results[0].type.dtype != second.results[0].type.dtype:
            return None
        one, other = _canonical(first), _canonical(second)
        if one.sizes != other.sizes:
            return None
        indices = tuple(substitute(at, other.names) for at in index)
        if indices != tuple(one.names[axis.name] for axis in first.axes):
            return None
        same = substitute_expr(first.bodies[0], one.names) == substitute_expr(element, other.names)
        return first if same else None


@dataclass(frozen=True, slots=True)
class _Canonical:
    """Canonical names of a reduction's axes, to compare reductions whose axes have different names."""

    names: Mapping[str, Size]
    """The name of each axis by its position; 0 for an axis of size 1."""
    sizes: tuple[tuple[Size, ...], tuple[Size, ...]]
    """The sizes other than 1 of the outer and of the reduced axes."""


def _canonical(operation: Reduction) -> _Canonical:
    names: dict[str, Size] = {}
    sizes: list[tuple[Size, ...]] = []
    for prefix, axes in (("outer", operation.axes), ("inner", operation.reduce_axes)):
        axes_left = [axis for axis in axes if axis.size != 1]
        names.update({axis.name: 0 for axis in axes})
        names.update({axis.name: symbol(f"{prefix}.{k}") for k, axis in enumerate(axes_left)})
        sizes.append(tuple(axis.size for axis in axes_left))
    return _Canonical(names, (sizes[0], sizes[1]))


def _load(value: Value, axes: tuple[Axis, ...]) -> Load:
    """Return the element of a value whose dimensions are ``axes``."""
    return Load(value.name, tuple(symbol(axis.name) for axis in axes), value.type.dtype)


def _read_result(second: Reduction, value: Value, first: Reduction) -> Pointwise:
    """Return the loop that computes the result of ``second`` from ``value``, whose dimensions are axes of ``first``."""
    return _pointwise(second, _corresponding(second, value, first))


def _read_sum_of_exponentials(second: Reduction, total: Value, first: Reduction) -> Pointwise:
    """Return the loop that computes ``second`` from the results of the online softmax that replaces ``first``.

    That sum is 0 if all elements are minus infinity, where the difference of an element and the maximum is NaN.
    """
    maximum = _corresponding(second, first.results[0], first)
    lowest, undefined = const(-inf, maximum.dtype), const(nan, total.type.dtype)
    return _pointwise(
        second, where(op("eq", maximum, lowest), undefined, _corresponding(second, total, first))
    )


def _corresponding(second: Reduction, value: Value, first: Reduction) -> Load:
    """Return the element of ``value``, whose dimensions are axes of ``first``, for a result of ``second``."""
    indices = iter([symbol(axis.name) for axis in second.axes if axis.size != 1])
    index: tuple[Size, ...] = tuple(0 if axis.size == 1 else next(indices) for axis in first.axes)
    return Load(value.name, index, value.type.dtype)


def _pointwise(second: Reduction, body: Expr) -> Pointwise:
    return Pointwise(results=second.results, axes=second.axes, bodies=(body,), origin=second.origin)
