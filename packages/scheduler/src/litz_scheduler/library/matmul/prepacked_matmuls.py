"""Matmuls of inference as sums over prepacked weights, which a CPU's kernels compute in tiles with their epilogues."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from litz_ir.device import CPU
from litz_ir.dtypes import f32
from litz_ir.fused import Decision
from litz_ir.loops import (
    Axis,
    ContractionCall,
    LoopGraph,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    Ref,
    TensorType,
    Value,
    View,
    contiguous,
)
from litz_ir.origin import Origin
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, Load, const, index, masked, op
from litz_ir.symbols import Size, add, floordiv, mod, mul, substitute, symbol
from litz_ir.target import DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import VersionDeadlines, alias_type
from litz_scheduler.library.constants.frozen_region import FrozenRegion
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class PrepackMatmuls:
    """Replace calls of ``linear`` whose weight is frozen by sums over weights that are prepacked in the frozen region.

    The form is that of a convolution of single pixels: kernels compute it in tiles, with what follows while a tile is
    in cache. Matmuls whose rows are not contiguous in memory, or of unknown sizes, stay calls.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """``prepack_matmuls`` turns the pass on."""
    name: str = "prepack-matmuls"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "cpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        machine = context.machine(CPU)
        if (
            not self.options.prepack_matmuls
            or not data.frozen
            or machine is None
            or not machine.panel_columns
        ):
            return data
        if not any(isinstance(each, ContractionCall) and each.target == "linear" for each in data.operations):
            return data
        return _Rewriter(data, machine.panel_columns, context).run()


@dataclass(frozen=True, slots=True)
class _Read:
    """A matrix, as elements of a value in memory."""

    value: Value
    """The value that is read."""
    axes: tuple[Axis, ...]
    """Axes of the matrix."""
    index: tuple[Size, ...]
    """The element of the value at a point of these axes."""

    def at(self, row: Size, column: Size) -> Load:
        """Return the element in a row and a column."""
        points = {axis.name: at for axis, at in zip(self.axes, (row, column), strict=True)}
        return Load(self.value.name, tuple(substitute(term, points) for term in self.index), f32)


class _Rewriter:
    """Rewrites the calls of a graph, in program order."""

    def __init__(self, graph: LoopGraph, columns: int, context: PassContext) -> None:
        self._graph = graph
        self._columns = columns
        self._context = context
        self._frozen_region = FrozenRegion(graph)
        self._values = graph.values()
        self._versions = VersionDeadlines(graph)
        self._views = {view.name: view for view in graph.operations if isinstance(view, View)}
        self._positions = {each.name: position for position, each in enumerate(graph.operations)}
        self._prepacked: dict[tuple[str, tuple[Size, ...]], str] = {}

    def run(self) -> LoopGraph:
        """Return the rewritten graph, with the frozen region first."""
        operations: list[Operation] = []
        for operation in self._frozen_region.others:
            loops = self._loops(operation) if isinstance(operation, ContractionCall) else ()
            if loops:
                self._context.decide(Decision("library", operation.name, "generate", reasons.LIBRARY_TILES))
            operations.extend(loops or (operation,))
        return self._graph.with_operations((*self._frozen_region.region(), *operations))

    def _loops(self, call: ContractionCall) -> tuple[Operation, ...]:
        """Return the loops that replace a call; empty where it remains."""
        if call.target != "linear" or len(call.arguments) != 3:
            return ()
        rows, weight, bias = (each.name if isinstance(each, Ref) else None for each in call.arguments)
        result = call.results[0]
        if rows is None or weight is None or len(result.type.shape) != 2:
            return ()
        a, b = self._read(rows, call), self._read(weight, call)
        if a is None or b is None or b.value.name not in self._graph.frozen:
            return ()
        sizes = (*result.type.shape, *self._values[weight].type.shape)
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            return ()
        if not self._is_read_by_rows(result):
            return ()
        strides = self._strides(rows)
        if strides is None or strides[-1] != 1 or not isinstance(strides[0], int) or strides[0] <= 0:
            return ()
        prepacked = self._weight(call, weight, b)
        total = result if bias is None else Value(f"{result.name}.sum", _plain(result.type))
        loops: tuple[Operation, ...] = (self._sum(call, total, a, prepacked),)
        if bias is not None:
            loops = (*loops, _biased(result, total.name, bias, call.origin))
        return loops

    def _is_read_by_rows(self, result: Value) -> bool:
        """Report whether every loop that reads a result runs along its rows.

        Fused with another, such as one that divides columns among heads and rotates halves of them, a sum has no tiles.
        """
        names = {result.name}
        for view in self._views.values():
            if view.base in names:
                names.add(view.name)
        columns = result.type.shape[-1]
        return all(
            operation.axes[-1:] and operation.axes[-1].size == columns
            for operation in self._graph.operations
            if isinstance(operation, Pointwise) and not names.isdisjoint(operation.reads)
        )

    def _read(self, name: str, call: ContractionCall) -> _Read | None:
        """Return how the elements of a matrix are read; ``None`` where a loop cannot read its memory at the call."""
        view = self._views.get(name)
        if view is None:
            axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(self._values[name].type.shape))
            return _Read(self._values[name], axes, tuple(symbol(axis.name) for axis in axes))
        deadline = self._versions.deadline(view.base)
        if view.base in self._views or (deadline is not None and self._positions[call.name] >= deadline):
            return None
        base = self._values[view.base]
        return _Read(base, view.axes, view.index) if base.type.dtype == f32 else None

    def _strides(self, name: str) -> tuple[Size, ...] | None:
        """Return the strides of a matrix in memory; ``None`` where it has none."""
        view = self._views.get(name)
        if view is None:
            return self._values[name].type.layout.strides
        found = alias_type(view, self._values[view.base].type, self._graph.symbols)
        return None if found is None else found.layout.strides

    def _weight(self, call: ContractionCall, name: str, weight: _Read) -> str:
        """Return the name of the prepacked weight, which the frozen region computes once for all its readers."""
        key = (weight.value.name, weight.index)
        if key not in self._prepacked:
            outputs, depth = self._values[name].type.shape
            assert isinstance(outputs, int)
            shape: tuple[Size, ...] = (-(-outputs // self._columns), depth, self._columns)
            axes = tuple(Axis(f"p{k}", size) for k, size in enumerate(shape))
            panel, k, column = (symbol(axis.name) for axis in axes)
            number = add(mul(panel, self._columns), column)
            body: Expr = weight.at(number, k)
            if outputs % self._columns:
                body = masked(op("lt", index(number), index(outputs)), body, const(0.0, f32))
            value = Value(f"{call.name}.prepacked", TensorType(f32, shape, contiguous(shape)))
            self._frozen_region.compute(
                Pointwise(results=(value,), axes=axes, bodies=(body,), origin=call.origin)
            )
            self._prepacked[key] = self._frozen_region.result(value.name, value.type)
        return self._prepacked[key]

    def _sum(self, call: ContractionCall, total: Value, a: _Read, weight: str) -> Reduction:
        """Return the sum over K."""
        rows, outputs = (Axis(f"m{k}", size) for k, size in enumerate(total.type.shape))
        depth = Axis("k0", a.axes[1].size)
        own, k = symbol(outputs.name), symbol(depth.name)
        panels = Load(weight, (floordiv(own, self._columns), k, mod(own, self._columns)), f32)
        body = op("mul", a.at(symbol(rows.name), k), panels)
        return Reduction(
            results=(total,), axes=(rows, outputs), reduce_axes=(depth,), combiner=NamedCombiner("sum"),
            bodies=(body,), origin=call.origin,
        )  # fmt: skip


def _plain(type_: TensorType) -> TensorType:
    return replace(type_, layout=contiguous(type_.shape))


def _biased(result: Value, total: str, bias: str, origin: Origin) -> Pointwise:
    """Return the loop that adds the bias of each column to a sum."""
    axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(result.type.shape))
    row, column = (symbol(axis.name) for axis in axes)
    body = op("add", Load(total, (row, column), f32), Load(bias, (column,), f32))
    return Pointwise(results=(result,), axes=axes, bodies=(body,), origin=origin)
