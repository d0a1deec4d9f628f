"""Two reductions of the same elements, of which the second wants the result of the first, as one that reads them once.

The sum of squared differences from the mean comes with the mean (Welford), the sum of exponentials relative to the
maximum with the maximum. On a GPU that halves what is read where a row does not stay in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from litz_ir.dtypes import f32, f64
from litz_ir.fused import Decision
from litz_ir.loops import Axis, LoopGraph, NamedCombiner, Operation, Pointwise, Reduction, Value
from litz_ir.passes import PassContext
from litz_ir.scalar import Const, Expr, Load, Op, const, op, substitute_expr
from litz_ir.symbols import Size, substitute, symbol
from litz_scheduler.cost import estimate, points
from litz_scheduler.graph_facts import output_names
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.split_reduction import reads_columns


@dataclass(frozen=True, slots=True)
class OnlineReductions:
    """Let one reduction do what two do, where both would read from memory."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "online-reductions"
    ulp: int = 256

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        made = _Merged(data)
        operations: list[Operation] = []
        for operation in data.operations:
            if isinstance(operation, Reduction) and self._is_long(operation, data, context):
                first = made.first_of(operation)
                if first is not None:
                    place = operations.index(first.operation)
                    operations[place : place + 1] = first.merged
                    operations.append(first.shown)
                    made.known[first.operation.name] = first.merged[0]
                    context.decide(Decision("split", operation.name, "merge", "merge.online"))
                    continue
            made.known[operation.name] = operation
            operations.append(operation)
        return data.with_operations(tuple(operations))

    def _is_long(self, operation: Reduction, graph: LoopGraph, context: PassContext) -> bool:
        """True on a GPU for what does not stay in registers."""
        machine = context.machine(operation.results[0].type.device)
        if machine is None or not machine.sm_count or operation.results[0].type.dtype not in (f32, f64):
            return False
        inner = estimate(points(operation.reduce_axes), graph.symbols)
        options = self.options
        return inner > (options.tall_column if reads_columns(operation, graph) else options.long_row)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The first of two reductions, what replaces it, and what shows the second's results where that was."""

    operation: Reduction
    merged: tuple[Operation, ...]
    shown: Operation


class _Merged:
    """The operations before the one that is looked at, by the name of their first result."""

    def __init__(self, graph: LoopGraph) -> None:
        self.known: dict[str, Operation] = {}
        self._returned = output_names(graph)

    def first_of(self, second: Reduction) -> _Pair | None:
        """The reduction that ``second`` can be one with."""
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
        """The body, with the pointwise value that it is in place of its load."""
        if isinstance(body, Load):
            maker = self.known.get(body.buffer)
            if isinstance(maker, Pointwise) and len(maker.results) == 1:
                places = {axis.name: at for axis, at in zip(maker.axes, body.index, strict=True)}
                return substitute_expr(maker.bodies[0], places)
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
                return _Pair(first, (merged,), _shown(second, total, first))
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
                    return None  # a mean times their number is not the sum of integers to the last place
                (total,) = first.results
                names = ("mean", "squares", "count")
                mean, squares, count = (Value(f"{total.name}.{name}", total.type) for name in names)
                merged = replace(first, results=(mean, squares, count), combiner=NamedCombiner("welford"))
                back = op("mul", _load(mean, first.axes), const(float(n), total.type.dtype))
                sums = Pointwise(results=(total,), axes=first.axes, bodies=(back,), origin=first.origin)
                return _Pair(first, (merged, sums), _shown(second, squares, first))
        return None

    def _same_elements(
        self, name: str, kind: str, element: Expr, index: tuple[Size, ...], second: Reduction
    ) -> Reduction | None:
        """The reduction ``name`` where it is of that kind and combines the elements that ``second`` looks at, each
        row's with the same row's result."""
        first = self.known.get(name)
        if not isinstance(first, Reduction) or not isinstance(first.combiner, NamedCombiner):
            return None
        if first.combiner.name != kind or first.results[0].type.dtype != second.results[0].type.dtype:
            return None
        one, other = _canonical(first), _canonical(second)
        if one.sizes != other.sizes:
            return None
        places = tuple(substitute(at, other.names) for at in index)
        if places != tuple(one.names[axis.name] for axis in first.axes):
            return None
        same = substitute_expr(first.bodies[0], one.names) == substitute_expr(element, other.names)
        return first if same else None


@dataclass(frozen=True, slots=True)
class _Canonical:
    """Names for the axes of a reduction by their place, those of one point left out, and the sizes of those left."""

    names: Mapping[str, Size]
    sizes: tuple[tuple[Size, ...], tuple[Size, ...]]


def _canonical(operation: Reduction) -> _Canonical:
    names: dict[str, Size] = {}
    sizes: list[tuple[Size, ...]] = []
    for letter, axes in (("outer", operation.axes), ("inner", operation.reduce_axes)):
        wide = [axis for axis in axes if axis.size != 1]
        names.update({axis.name: 0 for axis in axes})
        names.update({axis.name: symbol(f"{letter}.{k}") for k, axis in enumerate(wide)})
        sizes.append(tuple(axis.size for axis in wide))
    return _Canonical(names, (sizes[0], sizes[1]))


def _load(value: Value, axes: tuple[Axis, ...]) -> Load:
    """The element of a value at a point of axes that are its dimensions."""
    return Load(value.name, tuple(symbol(axis.name) for axis in axes), value.type.dtype)


def _shown(second: Reduction, value: Value, first: Reduction) -> Pointwise:
    """What ``second`` gives, read from ``value``, whose dimensions are the axes of ``first``."""
    wide = iter([symbol(axis.name) for axis in second.axes if axis.size != 1])
    index: tuple[Size, ...] = tuple(0 if axis.size == 1 else next(wide) for axis in first.axes)
    body = Load(value.name, index, value.type.dtype)
    return Pointwise(results=second.results, axes=second.axes, bodies=(body,), origin=second.origin)
