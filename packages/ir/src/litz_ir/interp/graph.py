"""The meaning of a loop graph: every operation in program order, on NumPy arrays.

Arrays are in memory form (``litz_ir.interp.encoding``). Every operation creates a new array, views too. Only a result
that replaces a version and a call that mutates write to an existing array, so a caller sees its inputs change as eager
would change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from litz_ir.errors import GraphError, asserted
from litz_ir.interp.bind import bind_inputs, bind_result, check_array, numpy_geometry, require_mapping
from litz_ir.interp.body import BodyEvaluator, PointGrid, check_index, gather, grid_of, with_origin
from litz_ir.interp.calls import Externs, call, resolve
from litz_ir.interp.combine import reduce_last, scan_last
from litz_ir.interp.encoding import Array, check_storage, decode, encode, storage_dtype
from litz_ir.interp.pairs import as_pairs
from litz_ir.interp.regions import run_region
from litz_ir.interp.scatter import scatter_into
from litz_ir.loops.layout import contiguous_strides
from litz_ir.loops.nodes import (
    Assert,
    Axis,
    Call,
    ComplexValue,
    HostScalar,
    LoopGraph,
    Mutation,
    Operation,
    Output,
    Pointwise,
    Reduction,
    Ref,
    Region,
    ScalarInput,
    ScalarRef,
    Scan,
    Scatter,
    Sort,
    StridedRef,
    Value,
    View,
)
from litz_ir.scalar.expr import Load
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size, Term, evaluate

NO_EXTERNS: Externs = {}
"""The empty table of routines."""


def run_graph(
    graph: LoopGraph,
    inputs: Sequence[Any],
    constants: Mapping[str, Array] | None = None,
    externs: Externs = NO_EXTERNS,
    *,
    symbols: Mapping[str, int | float] | None = None,
) -> list[Any]:
    """The outputs of ``graph``: arrays, Python scalars and ``None``.

    ``inputs`` are arrays in memory form, Python scalars or objects, one for each input of the graph; ``symbols`` are
    those of the graph around a subgraph. Raises :class:`GraphError` for inputs that do not fit,
    :class:`IndexOutOfRange` for an access outside a buffer, :class:`AssertionFailed`, and the errors of the graph's
    calls.
    """
    if not isinstance(graph, LoopGraph):
        raise GraphError(
            f"run_graph takes a LoopGraph, got a value of type {type(graph).__name__}",
            hint="run a plan by litz_ir.host.Executor, and the graph of a fused graph by run_graph(fused.graph)",
        )
    for value, called in ((constants, "constants"), (externs, "externs"), (symbols, "symbols")):
        if value is not None:
            require_mapping(value, called)
    run = _Run(externs, dict(symbols or {}))
    run.start(graph, inputs, constants or {})
    for operation in graph.operations:
        with with_origin(operation.name, operation.origin):
            run.step(operation)
    return [run.output(output) for output in graph.outputs]


class _Run:
    """One execution: the arrays and symbols known so far."""

    def __init__(self, externs: Externs, symbols: dict[str, Any]) -> None:
        self.externs = externs
        self.symbols = symbols
        self.values: dict[str, Any] = {}
        self.constants: dict[str, Any] = {}

    def start(self, graph: LoopGraph, inputs: Sequence[Any], constants: Mapping[str, Array]) -> None:
        self.symbols.update(bind_inputs(graph.inputs, inputs, numpy_geometry))
        self.constants.update(constants)
        for each, argument in zip(graph.inputs, inputs):
            if isinstance(each, Value):
                check_array(argument, each.type.dtype, f"input {each.name}")
            if not isinstance(each, ScalarInput):
                self.values[each.name] = argument
        for constant in graph.constants:
            if constant.name not in constants:
                raise GraphError(f"the constant {constant.name} is missing", stage="inputs")
            check_array(constants[constant.name], constant.type.dtype, f"constant {constant.name}")
            self.values[constant.name] = constants[constant.name]

    def output(self, output: Output) -> Any:
        if isinstance(output, Ref):
            return self.values[output.name]
        if isinstance(output, ScalarRef):
            return self.symbols[output.name]
        return evaluate(output, self.symbols) if isinstance(output, Term) else output

    def step(self, operation: Operation) -> None:
        match operation:
            case Pointwise():
                body = self.body(operation.axes)
                self.define(operation, [body.value(expr) for expr in operation.bodies])
            case Reduction():
                self.reduction(operation)
            case Scan():
                self.scan(operation)
            case Scatter():
                self.scatter(operation)
            case Sort():
                self.sort(operation)
            case View():
                self.view(operation)
            case Mutation():
                self.overwrite(operation.target, operation.results[0], self.values[operation.source])
            case Call():
                self.call(operation)
            case Region():
                self.region(operation)
            case Assert():
                if not self.body(()).value(operation.condition):
                    raise asserted(operation.error, operation.message)
            case HostScalar():
                self.symbols[operation.symbol] = self.body(()).value(operation.body).item()
            case _:
                raise GraphError(f"unknown operation {type(operation).__name__}")

    def size(self, size: Size) -> int:
        return evaluate(size, self.symbols)

    def grid(self, axes: Sequence[Axis]) -> PointGrid:
        return grid_of([(axis.name, self.size(axis.size)) for axis in axes])

    def body(self, axes: Sequence[Axis]) -> BodyEvaluator:
        return BodyEvaluator(self.grid(axes), self.read, self.symbols)

    def read(self, load: Load, index: tuple[Array, ...], mask: Array | None) -> Array:
        array = self.values.get(load.buffer)
        if array is None:
            raise GraphError(f"{load.buffer} is read before it is defined", node=load.buffer)
        check_storage(array, load.dtype, load.buffer)
        return gather(array, load, index, mask)

    def define(self, operation: Operation, values: Sequence[Array]) -> None:
        """Store computed values as the operation's results, to whose shapes they broadcast."""
        for result, value in zip(operation.results, values, strict=True):
            self.store(result, encode(value, result.type.dtype))

    def store(self, result: Value, stored: Array) -> None:
        shape = tuple(map(self.size, result.type.shape))
        if stored.shape != shape:
            raise GraphError(f"{result.name} has shape {stored.shape}, but its type has {shape}")
        if result.replaces is None:
            self.values[result.name] = self.with_strides(result, stored)
        else:
            self.overwrite(result.replaces, result, stored)

    def overwrite(self, old: str, new: Value, stored: Array) -> None:
        """Write ``stored``, which may be a view of the old version, into the old version's array, which becomes the
        new version.
        """
        if old not in self.values:
            raise GraphError(f"{new.name} overwrites {old}, which is not defined")
        target = self.values[new.name] = self.values[old]
        np.copyto(target, np.array(stored))

    def with_strides(self, result: Value, stored: Array) -> Array:
        """A new array with the strides of a fixed layout, if they are a permutation of dense ones."""
        layout = result.type.layout
        strides = tuple(map(self.size, layout.strides))
        if not layout.fixed or strides == contiguous_strides(stored.shape):
            return np.array(stored, order="C")
        order = sorted(range(stored.ndim), key=lambda d: (-strides[d], d))
        dense = np.array(stored.transpose(order), order="C").transpose(np.argsort(order))
        return dense if numpy_geometry(dense)[1] == strides else np.array(stored, order="C")

    def reduction(self, operation: Reduction) -> None:
        body = self.body((*operation.axes, *operation.reduce_axes))
        outer_shape = body.grid.shape[: len(operation.axes)]
        found = reduce_last(
            operation.combiner,
            [
                body.value(expr).reshape(*outer_shape, prod(body.grid.shape[len(outer_shape) :]))
                for expr in operation.bodies
            ],
            [expr.dtype for expr in operation.bodies],
            [result.type.dtype for result in operation.results],
            self.symbols,
        )
        # A result with one element along an axis has the same value at all points of that axis.
        slices_of_results = (
            tuple(slice(self.size(s)) for s in result.type.shape) for result in operation.results
        )
        self.define(
            operation, [value[slices] for value, slices in zip(found, slices_of_results, strict=True)]
        )

    def scan(self, operation: Scan) -> None:
        body = self.body((*operation.axes, operation.scan_axis))
        found = scan_last(
            operation.combiner,
            [body.value(expr) for expr in operation.bodies],
            [expr.dtype for expr in operation.bodies],
            [result.type.dtype for result in operation.results],
            self.symbols,
        )
        self.define(operation, [np.moveaxis(value, -1, operation.dimension) for value in found])

    def scatter(self, operation: Scatter) -> None:
        (result,) = operation.results
        body = self.body(operation.axes)
        values = body.value(operation.body).reshape(-1)
        stored = np.array(self.values[operation.base], order="C")
        index = check_index(result.name, stored.shape, tuple(map(body.index, operation.index)), None)
        offsets: Array = np.zeros(body.grid.shape, np.int64)
        for position, stride in zip(index, contiguous_strides(stored.shape)):
            offsets = offsets + position * np.int64(self.size(stride))
        flat = stored.reshape(-1)
        scatter_into(flat, result.type.dtype, offsets.reshape(-1), values, operation.mode)
        self.store(result, stored)

    def sort(self, operation: Sort) -> None:
        source = self.values[operation.source]
        dtype = operation.results[0].type.dtype
        positions = sort_positions(decode(source, dtype), operation.dimension, operation.descending)
        ordered = np.take_along_axis(source, positions, operation.dimension) if source.ndim else source
        for result, stored in zip(operation.results, (ordered, positions)):
            self.store(result, stored.astype(storage_dtype(result.type.dtype)))

    def view(self, operation: View) -> None:
        (result,) = operation.results
        base = self.values[operation.base]
        body = self.body(operation.axes)
        stored = storage_dtype(result.type.dtype)
        if 0 in body.grid.shape:
            self.store(result, np.zeros(body.grid.shape, stored))
            return
        index = check_index(operation.base, base.shape, tuple(map(body.index, operation.index)), None)
        self.store(result, np.broadcast_to(np.asarray(base[index]).view(stored), body.grid.shape))

    def call(self, operation: Call) -> None:
        returned = call(
            self.externs,
            operation.target,
            operation.arguments,
            operation.attributes,
            self.values.__getitem__,
            self.strided_view,
            self.symbols,
        )
        results = [result for result in operation.results if result.name not in operation.unreturned]
        for result, tensor in zip(results, returned if operation.unpack else (returned,)):
            if tensor is not None:
                tensor = as_pairs(tensor) if isinstance(result, ComplexValue) else tensor
                bind_result(result.type, tensor, numpy_geometry, self.symbols)
                self.values[result.name] = tensor
        for old, new in operation.mutates:
            self.values[new] = self.values[old]

    def strided_view(self, ref: StridedRef) -> Array:
        """A view of the elements, so that a routine that writes to it overwrites the value."""
        base = self.values[ref.name]
        start, *strides = map(self.size, (ref.layout.offset, *ref.layout.strides))
        reach = np.lib.stride_tricks.as_strided(base, (start + 1,), (base.itemsize,))[start:]
        steps = [stride * base.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(reach, tuple(map(self.size, ref.shape)), steps)

    def region(self, operation: Region) -> None:
        def runner(graph: LoopGraph) -> Any:
            constants = {**self.constants, **self.values}
            return lambda inputs: run_graph(graph, inputs, constants, self.externs, symbols=self.symbols)

        lookup = self.values.__getitem__
        arguments = [resolve(each, lookup, self.strided_view, self.symbols) for each in operation.arguments]
        found = run_region(operation.kind, list(map(runner, operation.subgraphs)), arguments, _Arrays())
        for result, tensor in zip(operation.results, found, strict=True):
            bind_result(result.type, tensor, numpy_geometry, self.symbols)
            self.values[result.name] = np.asarray(tensor)


class _Arrays:
    """Operations on arrays that regions need."""

    def stack(self, tensors: Sequence[Any]) -> Array:
        return np.stack(tensors)

    def copy(self, tensor: Any) -> Array:
        return np.copy(tensor, order="K")

    def truth(self, value: Any) -> bool:
        return bool(value)

    def rows(self, tensor: Any) -> Sequence[Array]:
        return list(tensor)


def sort_positions(values: Array, dimension: int, descending: bool) -> Array:
    """The stable order of ``values`` along a dimension, as ``i64`` positions; NaN counts as the largest value."""
    if values.ndim == 0:
        return np.zeros((), np.int64)
    if not descending:
        return np.asarray(np.argsort(values, axis=dimension, kind="stable"), np.int64)
    backwards = np.argsort(np.flip(values, dimension), axis=dimension, kind="stable")
    return np.asarray(values.shape[dimension] - 1 - np.flip(backwards, dimension), np.int64)


def evaluate_scalar(
    expr: Expr, values: Mapping[str, Array], symbols: Mapping[str, int | float]
) -> int | float | bool:
    """A 0-d body evaluated on the host, as a Python scalar; loads read ``values`` by logical index."""
    run = _Run(NO_EXTERNS, dict(symbols))
    run.values.update(values)
    found: int | float | bool = run.body(()).value(expr).item()
    return found
