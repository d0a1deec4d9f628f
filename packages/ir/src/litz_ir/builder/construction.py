"""Inputs, operations and outputs of a loop graph under construction."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from litz_ir.builder.tensor import Operand, Tensor
from litz_ir.builder.views import IndexMap, broadcast, broadcast_index, described, normalized
from litz_ir.device import CPU, Device
from litz_ir.dtypes import DType, i64
from litz_ir.errors import GraphError
from litz_ir.loops.layout import Layout, contiguous
from litz_ir.loops.nodes import (
    Axis,
    Combiner,
    LoopGraph,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    Ref,
    TensorType,
    UserCombiner,
    Value,
    View,
)
from litz_ir.origin import Origin
from litz_ir.scalar import build
from litz_ir.scalar.expr import Load
from litz_ir.scalar.node import Expr
from litz_ir.scalar.ops_table import OPS
from litz_ir.symbols.polynomials import coefficient
from litz_ir.symbols.ranges import extent
from litz_ir.symbols.simplification import simplify
from litz_ir.symbols.substitution import substitute
from litz_ir.symbols.table import SymbolInfo, SymbolTable
from litz_ir.symbols.term import Size, Symbol, free_symbols, symbol
from litz_ir.verifier import verify

_HERE = str(Path(__file__).parent)


class Construction:
    """Inputs, outputs and the operations that operators of tensors add, of a graph under construction."""

    def __init__(self, name: str, *, device: Device = CPU) -> None:
        self.name = name
        self.device = device
        self._symbols = SymbolTable()
        self._inputs: list[Value] = []
        self._operations: list[Operation] = []
        self._outputs: list[Tensor] = []
        self._names: set[str] = set()
        self._overwritten: dict[str, str] = {}

    # --- inputs and outputs ------------------------------------------------------------------------------------------

    def size(
        self, name: str, low: int = 1, high: int | None = None, *, divisor: int = 1, hint: int | None = None
    ) -> Symbol:
        """Add a size that is known at run time, in ``[low, high]`` and a multiple of ``divisor``; ``hint`` is typical.

        It is read from the shape of an input.
        """
        self._symbols = self._symbols.add(SymbolInfo(name, "int", low, high, divisor, hint))
        return symbol(name)

    def input(
        self, name: str, dtype: DType, shape: Sequence[Size], *, strides: Sequence[Size] | None = None
    ) -> Tensor:
        """Add an argument of the graph; ``strides`` are in elements, by default row-major."""
        layout = contiguous(tuple(shape), fixed=True)
        if strides is not None:
            layout = replace(layout, strides=tuple(strides))
        value = Value(self._named(name), TensorType(dtype, tuple(shape), layout, self.device))
        self._inputs.append(value)
        return Tensor(self, value.name, value.type)

    def output(self, *tensors: Tensor) -> None:
        """Add results of the graph, in order."""
        for each in tensors:
            self._own(each)
        self._outputs += tensors

    def build(self, *outputs: Tensor) -> LoopGraph:
        """Return the verified graph, with ``outputs`` after those of :meth:`output`."""
        self.output(*outputs)
        returned = {each.name for each in self._outputs}
        graph = LoopGraph(
            name=self.name,
            symbols=self._symbols,
            inputs=tuple(self._inputs),
            constants=(),
            operations=tuple(_promised(each, returned) for each in self._operations),
            outputs=tuple(Ref(each.name) for each in self._outputs),
        )
        verify(graph)
        return graph

    # --- by element --------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        """The method of a scalar operation, such as ``g.exp``."""
        if name in OPS:
            return partial(self.op, name)
        raise AttributeError(
            f"GraphBuilder has no method {name!r}, and the table of scalar operations no such row"
        )

    def op(self, operation: str, *operands: Operand, dtype: DType | None = None, name: str = "") -> Tensor:
        """Apply a scalar operation of the table to the broadcast elements of tensors and literals.

        ``dtype`` is the result's, which casts need.
        """
        tensors = [each for each in operands if isinstance(each, Tensor)]
        if not tensors:
            raise GraphError(f"{operation} of literals alone", hint="one operand is a tensor; full makes one")
        # A choice has the dtype of what is chosen.
        literal = (tensors[1:] or tensors)[0].dtype if operation == "where" else tensors[0].dtype

        def body(*loads: Expr) -> Expr:
            left = iter(loads)
            values = [
                next(left) if isinstance(each, Tensor) else build.const(each, literal) for each in operands
            ]
            if operation == "cast" and dtype is not None:
                return build.cast(values[0], dtype)
            return build.op(operation, *values, dtype=dtype)

        return self.pointwise(body, *tensors, name=name or operation)

    def pointwise(
        self,
        body: Callable[..., Expr],
        *tensors: Tensor,
        shape: Sequence[Size] | None = None,
        name: str = "pointwise",
    ) -> Tensor:
        """Return ``body`` of the elements that broadcasting brings together, as one loop.

        ``body`` is a function from one expression a tensor to an expression, made by ``litz_ir.scalar``; with
        ``shape``, the tensors broadcast to it.
        """
        joint = broadcast(*(each.shape for each in tensors))
        if shape is not None and broadcast(joint, tuple(shape)) != tuple(shape):
            raise GraphError(f"shape {described(joint)} does not broadcast to {described(tuple(shape))}")
        axes = axes_of(joint if shape is None else shape)
        point = terms_of(axes)
        value = body(*(self._load(each, broadcast_index(each.shape, point)) for each in tensors))
        return self._add(
            Pointwise, name, value.dtype, [axis.size for axis in axes], axes=axes, bodies=(value,)
        )

    def full(
        self, shape: Sequence[Size], value: int | float | bool, dtype: DType, *, name: str = "full"
    ) -> Tensor:
        """Return a tensor of equal elements."""
        return self.pointwise(lambda: build.const(value, dtype), shape=shape, name=name)

    def index(self, shape: Sequence[Size], axis: int, dtype: DType = i64, *, name: str = "index") -> Tensor:
        """Return the index of each element along an axis of a shape."""
        term = symbol(f"i{normalized(axis, len(shape))}")
        return self.pointwise(lambda: build.cast(build.index(term), dtype), shape=shape, name=name)

    # --- matmuls and views ------------------------------------------------------------------------------------------

    def matmul(self, a: Tensor, b: Tensor, *, name: str = "matmul") -> Tensor:
        """Return the matmul of the last two dimensions, as a loop; those before them broadcast.

        Multiplications and sums have the dtype of the operands.
        """
        if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
            raise GraphError(
                f"matmul of shapes {described(a.shape)} and {described(b.shape)}",
                hint="operands have two dimensions or more, and the last of one is the last but one of the other",
            )
        batch = broadcast(a.shape[:-2], b.shape[:-2])
        axes = axes_of((*batch, a.shape[-2], b.shape[-1]))
        *outer, row, column = terms_of(axes)
        left = self._load(a, (*broadcast_index(a.shape[:-2], tuple(outer)), row, symbol("r0")))
        right = self._load(b, (*broadcast_index(b.shape[:-2], tuple(outer)), symbol("r0"), column))
        body = build.op("mul", left, right)
        return self._reduction("sum", [body], axes, (Axis("r0", a.shape[-1]),), name)[0]

    def view(
        self,
        x: Tensor,
        shape: Sequence[Size],
        index_map: IndexMap,
        *,
        may_copy: bool = False,
        name: str = "view",
    ) -> Tensor:
        """Return the elements of ``x`` under another index; ``index_map`` maps a point's terms to those of the base.

        The result shares memory with the base where strides can express that. Otherwise it is a copy with ``may_copy``,
        and an error without.
        """
        axes = axes_of(shape)
        ranges = {**self._symbols.ranges(), **{axis.name: extent(axis.size) for axis in axes}}
        index = tuple(simplify(term, ranges) for term in index_map(terms_of(axes)))
        layout = _alias_layout(simplify(x.type.layout.element(index), ranges), axes)
        if layout is None and not may_copy:
            raise GraphError(f"no strides express the view of {x.name}", node=x.name, hint="allow may_copy")
        shares = layout is not None
        return self._add(
            View,
            name,
            x.dtype,
            shape,
            layout=layout,
            base=self._own(x),
            axes=axes,
            index=index,
            aliases=shares,
        )

    # --- construction ------------------------------------------------------------------------------------------------

    def _reduction(
        self,
        kind: str | UserCombiner,
        bodies: Sequence[Expr],
        axes: tuple[Axis, ...],
        reduce_axes: tuple[Axis, ...],
        name: str,
    ) -> tuple[Tensor, ...]:
        combiner: Combiner
        if isinstance(kind, UserCombiner):
            combiner, title = kind, "combine"
            dtypes = tuple(each.dtype for each in kind.finish)
        else:
            combiner, title = NamedCombiner(kind), kind
            dtypes = combiner.kind.definition(tuple(each.dtype for each in bodies)).dtypes[: combiner.results]
        shape = tuple(axis.size for axis in axes)
        return self._add_several(
            Reduction, name or title, [(dtype, shape) for dtype in dtypes], axes=axes, reduce_axes=reduce_axes,
            combiner=combiner, bodies=tuple(bodies),
        )  # fmt: skip

    def _add(
        self,
        kind: type[Operation],
        name: str,
        dtype: DType,
        shape: Sequence[Size],
        *,
        layout: Layout | None = None,
        replaces: str | None = None,
        **fields: Any,
    ) -> Tensor:
        """Append an operation with one result."""
        type_ = TensorType(dtype, tuple(shape), layout or contiguous(tuple(shape)), self.device)
        value = Value(self._named(name), type_, replaces)
        self._operations.append(kind(results=(value,), origin=_caller(value.name, kind), **fields))
        return Tensor(self, value.name, type_)

    def _add_several(
        self,
        operation: type[Operation],
        name: str,
        types: Sequence[tuple[DType, Sequence[Size]]],
        **fields: Any,
    ) -> tuple[Tensor, ...]:
        """Append an operation with several results."""
        values = [
            Value(self._named(name), TensorType(dtype, tuple(shape), contiguous(tuple(shape)), self.device))
            for dtype, shape in types
        ]
        self._operations.append(
            operation(results=tuple(values), origin=_caller(values[0].name, operation), **fields)
        )
        return tuple(Tensor(self, value.name, value.type) for value in values)

    def _named(self, name: str) -> str:
        """Return a name that the graph does not have: ``name``, else with a number."""
        found, number = name, 0
        while found in self._names:
            number += 1
            found = f"{name}_{number}"
        self._names.add(found)
        return found

    def _own(self, tensor: Tensor) -> str:
        """Return the name of a tensor; raises ``GraphError`` for one of another graph, or that was overwritten."""
        if tensor.graph is not self:
            raise GraphError(
                f"{tensor.name} is a tensor of the graph {tensor.graph.name}, not of {self.name}"
            )
        newer = self._overwritten.get(tensor.name)
        if newer is not None:
            raise GraphError(
                f"{tensor.name} was overwritten", node=tensor.name, hint=f"use what assign returned: {newer}"
            )
        return tensor.name

    def _load(self, tensor: Tensor, index: tuple[Size, ...]) -> Expr:
        return Load(self._own(tensor), index, tensor.dtype)


def axes_of(shape: Sequence[Size]) -> tuple[Axis, ...]:
    """Return axes of a shape, called i0, i1 and so on."""
    return tuple(Axis(f"i{k}", size) for k, size in enumerate(shape))


def terms_of(axes: Sequence[Axis]) -> tuple[Size, ...]:
    """Return the loop variables of axes as index terms."""
    return tuple(symbol(axis.name) for axis in axes)


def _promised(operation: Operation, returned: set[str]) -> Operation:
    """Return an operation with the layouts of results that the graph returns promised to the caller."""
    results = tuple(
        replace(value, type=replace(value.type, layout=replace(value.type.layout, fixed=True)))
        if value.name in returned and value.replaces is None
        else value
        for value in operation.results
    )
    return operation if results == operation.results else replace(operation, results=results)


def _alias_layout(element: Size, axes: Sequence[Axis]) -> Layout | None:
    """Return the layout of a view whose points lie at an offset of elements; ``None`` if no strides express it."""
    names = {axis.name for axis in axes}
    row_major = contiguous([axis.size for axis in axes]).strides
    strides: list[Size] = []
    for axis, default in zip(axes, row_major, strict=True):
        if axis.size == 1:
            strides.append(default)  # it addresses no element
            continue
        slope = coefficient(element, axis.name)
        if slope is None or (isinstance(slope, int) and slope < 0) or free_symbols(slope) & names:
            return None
        strides.append(slope)
    return Layout(tuple(strides), substitute(element, dict.fromkeys(names, 0)))


def _caller(name: str, kind: type[Operation]) -> Origin:
    """Return the line outside the builder that adds an operation, as its origin."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    return Origin(name, kind.__name__.lower(), "", file, line, linecache.getline(file, line).strip())
