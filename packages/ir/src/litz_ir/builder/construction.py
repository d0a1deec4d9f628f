"""Inputs, operations and outputs of a loop graph under construction."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from litz_ir.builder.axes import alias_layout, axes_of, caller, promised, terms_of
from litz_ir.builder.checks import (
    checked_dtype,
    checked_int,
    checked_name,
    checked_operands,
    checked_shape,
    checked_tensor,
    literal,
    near,
    row_of,
    shown,
    unread_sizes,
)
from litz_ir.builder.combined import combined_dtypes, combiner_of
from litz_ir.builder.tensor import Operand, Tensor
from litz_ir.builder.views import IndexMap, broadcast, broadcast_index, described, normalized
from litz_ir.device import CPU, Device
from litz_ir.dtypes import DType, i64
from litz_ir.errors import DTypeError, GraphError
from litz_ir.loops.layout import Layout, contiguous
from litz_ir.loops.nodes import (
    Axis,
    Call,
    LoopGraph,
    Operation,
    Pointwise,
    Reduction,
    Ref,
    Region,
    TensorType,
    UserCombiner,
    Value,
    View,
)
from litz_ir.scalar import build
from litz_ir.scalar.expr import Load
from litz_ir.scalar.node import Expr
from litz_ir.scalar.ops_table import OPS
from litz_ir.symbols.ranges import extent
from litz_ir.symbols.simplification import simplify
from litz_ir.symbols.table import SymbolInfo, SymbolTable
from litz_ir.symbols.term import Size, Symbol, symbol
from litz_ir.verifier import verify

_AXIS_NAME = re.compile(r"[ir]\d+")
"""The names that the builder gives axes."""


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

        It is read from the shape of an input, or of a call's result, so one of these has it as a dimension.
        """
        if not isinstance(name, str) or _AXIS_NAME.fullmatch(name):
            raise GraphError(
                f"the name {shown(name)} is no name of a size",
                hint="give an identifier; i0, r0 and so on are axes of the builder's loops",
            )
        lowest, multiple = (
            checked_int(each, f"{role} of the size {name}")
            for each, role in ((low, "low"), (divisor, "divisor"))
        )
        highest, typical = (
            None if each is None else checked_int(each, f"{role} of the size {name}")
            for each, role in ((high, "high"), (hint, "hint"))
        )
        term = symbol(name)
        self._symbols = self._symbols.add(SymbolInfo(name, "int", lowest, highest, multiple, typical))
        return term

    def input(
        self, name: str, dtype: DType, shape: Sequence[Size], *, strides: Sequence[Size] | None = None
    ) -> Tensor:
        """Add an argument of the graph; ``strides`` are in elements, by default row-major.

        Raises ``GraphError`` for a name that another value has.
        """
        if checked_name(name) in self._names:
            raise GraphError(
                f"the graph {self.name} has a value {name}",
                node=name,
                hint="give each input a name of its own",
            )
        sizes = checked_shape(shape, f"the input {name}")
        layout = contiguous(sizes, fixed=True)
        if strides is not None:
            layout = replace(layout, strides=checked_shape(strides, f"strides of the input {name}"))
            if len(layout.strides) != len(sizes):
                raise GraphError(
                    f"the input {name} has {len(sizes)} dimensions and {len(layout.strides)} strides",
                    node=name,
                    hint="give one stride for each dimension",
                )
        type_ = TensorType(checked_dtype(dtype, f"the input {name}"), sizes, layout, self.device)
        value = Value(self._named(name), type_)
        self._inputs.append(value)
        return Tensor(self, value.name, value.type)

    def output(self, *tensors: Tensor) -> None:
        """Add results of the graph, in order."""
        for each in tensors:
            self._own(each, "an output")
        self._outputs += tensors

    def build(self, *outputs: Tensor) -> LoopGraph:
        """Return the verified graph, with ``outputs`` after those of :meth:`output`.

        Raises ``GraphError`` for a size that no input has as a dimension, and
        :class:`~litz_ir.errors.VerifyError`.
        """
        for each in outputs:
            self._own(each, "an output")
        self._check_sizes()
        results = (*self._outputs, *outputs)
        returned = {each.name for each in results}
        graph = LoopGraph(
            name=self.name,
            symbols=self._symbols,
            inputs=tuple(self._inputs),
            constants=(),
            operations=tuple(promised(each, returned) for each in self._operations),
            outputs=tuple(Ref(each.name) for each in results),
        )
        verify(graph)
        return graph

    def _check_sizes(self) -> None:
        """Raise ``GraphError`` for a size that a run could read from no shape."""
        called = (each for each in self._operations if isinstance(each, Call | Region))
        values = [*self._inputs, *(result for each in called for result in each.results)]
        unread = unread_sizes((info.name for info in self._symbols), (each.type.shape for each in values))
        if unread:
            raise GraphError(
                f"the size {unread[0]} has no value when the graph {self.name} runs: no input has it as a dimension",
                hint=f"give an input the dimension {unread[0]}, or write the number for the size",
            )

    # --- by element --------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        """The method of a scalar operation, such as ``g.exp``."""
        if name in OPS:
            return partial(self.op, name)
        hint = near(name, {*OPS, *(each for each in dir(type(self)) if not each.startswith("_"))})
        raise AttributeError(
            f"GraphBuilder has no method {name!r}, and the table of scalar operations no such row"
            f"{hint and '; ' + hint}"
        )

    def op(self, operation: str, *operands: Operand, dtype: DType | None = None, name: str = "") -> Tensor:
        """Apply a scalar operation of the table to the broadcast elements of tensors and literals.

        ``dtype`` is the result's, which casts need, and ``where`` if it chooses between two literals. Raises
        ``DTypeError`` for a literal that the dtype of the tensors cannot hold.
        """
        row = row_of(operation)
        if dtype is not None:
            checked_dtype(dtype, operation)
        values = checked_operands(row, operands, dtype)

        def body(*loads: Expr) -> Expr:
            left = iter(loads)
            parts = [next(left) if isinstance(each, Tensor) else each for each in values]
            if operation == "cast" and dtype is not None:
                return build.cast(parts[0], dtype)
            result = build.op(operation, *parts, dtype=dtype)
            if dtype is not None and result.dtype != dtype:
                raise DTypeError(
                    f"{operation} gives {result.dtype} here, not {dtype}", hint="convert it by to"
                )
            return result

        tensors = [each for each in values if isinstance(each, Tensor)]
        return self.pointwise(body, *tensors, name=name or operation)

    def pointwise(
        self,
        body: Callable[..., Expr],
        *tensors: Tensor,
        shape: Sequence[Size] | None = None,
        name: str = "pointwise",
    ) -> Tensor:
        """Return ``body`` of the elements that broadcasting brings together, as one loop.

        ``body`` is a function from one expression a tensor to an expression. Expressions have no operators: functions
        of ``litz_ir.scalar`` make them, literals too. With ``shape``, the tensors broadcast to it.

            from litz_ir.scalar import const, op
            g.pointwise(lambda a, b: op("add", op("exp", a), op("mul", b, const(0.5, f32))), x, y)
        """
        if not callable(body):
            raise GraphError(
                f"the body of {name} is {shown(body)}, but a function belongs there",
                hint="give a function from expressions to an expression first, then the tensors",
            )
        joint = broadcast(*(checked_tensor(each, f"an operand of {name}").shape for each in tensors))
        wanted = joint if shape is None else checked_shape(shape, name)
        if broadcast(joint, wanted) != wanted:
            raise GraphError(f"shape {described(joint)} does not broadcast to {described(wanted)}")
        axes = axes_of(wanted)
        point = terms_of(axes)
        value = body(*(self._load(each, broadcast_index(each.shape, point)) for each in tensors))
        if not isinstance(value, Expr):
            raise GraphError(
                f"the body of {name} returned {shown(value)}, but an expression belongs there",
                hint="make it by litz_ir.scalar, as op('exp', a), and a literal as const(1.5, f32)",
            )
        return self._add(
            Pointwise, name, value.dtype, [axis.size for axis in axes], axes=axes, bodies=(value,)
        )

    def full(
        self, shape: Sequence[Size], value: int | float | bool, dtype: DType, *, name: str = "full"
    ) -> Tensor:
        """Return a tensor of equal elements; raises ``DTypeError`` for a value that the dtype cannot hold."""
        element = literal(value, checked_dtype(dtype, name), name)
        return self.pointwise(lambda: element, shape=shape, name=name)

    def index(self, shape: Sequence[Size], axis: int, dtype: DType = i64, *, name: str = "index") -> Tensor:
        """Return the index of each element along an axis of a shape."""
        sizes = checked_shape(shape, name)
        value = build.cast(
            build.index(symbol(f"i{normalized(axis, len(sizes))}")), checked_dtype(dtype, name)
        )
        return self.pointwise(lambda: value, shape=sizes, name=name)

    # --- matmuls and views ------------------------------------------------------------------------------------------

    def matmul(self, a: Tensor, b: Tensor, *, name: str = "matmul") -> Tensor:
        """Return the matmul of the last two dimensions, as a loop; those before them broadcast.

        Multiplications and sums have the dtype of the operands.
        """
        for each in (a, b):
            checked_tensor(each, "an operand of matmul")
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
        axes = axes_of(checked_shape(shape, name))
        checked_tensor(x, f"the base of {name}")
        if not callable(index_map):
            raise GraphError(f"the index map of {name} is {shown(index_map)}, but a function belongs there")
        ranges = {**self._symbols.ranges(), **{axis.name: extent(axis.size) for axis in axes}}
        index = tuple(
            simplify(term, ranges)
            for term in checked_shape(index_map(terms_of(axes)), f"the index of {name}")
        )
        if len(index) != x.ndim:
            raise GraphError(
                f"the index map of {name} gives {len(index)} terms for {x.ndim} dimensions of {x.name}"
            )
        layout = alias_layout(simplify(x.type.layout.element(index), ranges), axes, ranges)
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
        combiner = combiner_of(kind)
        title = "combine" if isinstance(combiner, UserCombiner) else combiner.name
        dtypes = combined_dtypes(combiner, bodies)
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
        self._operations.append(kind(results=(value,), origin=caller(value.name, kind), **fields))
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
            operation(results=tuple(values), origin=caller(values[0].name, operation), **fields)
        )
        return tuple(Tensor(self, value.name, value.type) for value in values)

    def _named(self, name: str) -> str:
        """Return a name that the graph does not have: ``name``, else with a number."""
        found, number = checked_name(name), 0
        while found in self._names:
            number += 1
            found = f"{name}_{number}"
        self._names.add(found)
        return found

    def _own(self, tensor: Tensor, role: str = "an operand") -> str:
        """Return the name of a tensor; raises ``GraphError`` for one of another graph, or that was overwritten."""
        checked_tensor(tensor, role)
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
