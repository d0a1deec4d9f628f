"""Context of one FX node: types of its results, names and types of intermediates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import torch
from torch.fx import Node

from litz_ir.device import Device
from litz_ir.dtypes import DType, f32
from litz_ir.errors import LitzError, UnsupportedOperation
from litz_ir.loops import Axis, ComplexValue, Operation, TensorType, Value, tensor_type
from litz_ir.origin import Origin
from litz_ir.symbols import Size
from litz_lowering.contexts.builder import GraphBuilder
from litz_lowering.contexts.options import LoweringOptions
from litz_lowering.contexts.subgraphs import Subgraphs
from litz_lowering.contexts.values import Complex, Lowered, ResultType, Tensor


class NodeContext:
    """An FX node during lowering. Names of values derive from the node's.

    ``outputs`` are the types of its results in order, None for a result that is no tensor. ``complex_outputs``
    marks complex results, whose type is that of the pairs. ``subgraphs`` lowers the functions of higher-order
    operators.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        node: Node,
        outputs: tuple[ResultType, ...],
        origin: Origin,
        options: LoweringOptions,
        subgraphs: Subgraphs,
        complex_outputs: tuple[bool, ...] = (),
    ) -> None:
        self.builder = builder
        self.node = node
        self.outputs = outputs
        self.origin = origin
        self.options = options
        self.subgraphs = subgraphs
        self.complex_outputs = complex_outputs or (False,) * len(outputs)

    @property
    def output(self) -> TensorType:
        """Type of the single result: eager's dtype, shape, strides and device.

        Raises an error where the node has several results or none.
        """
        if len(self.outputs) != 1 or self.outputs[0] is None:
            raise self.error(f"expected one tensor result, found {len(self.outputs)}")
        return self.outputs[0]

    @property
    def unpack(self) -> bool:
        """True when the operator returns a tuple or list."""
        return isinstance(self.node.meta.get("val"), list | tuple)

    def of_result(self, position: int) -> Self:
        """Context of the node as if it returned one of its results alone, for operators over lists of tensors."""
        return type(self)(
            self.builder, self.node, (self.outputs[position],), self.origin, self.options, self.subgraphs,
            self.complex_outputs[position : position + 1],
        )  # fmt: skip

    def position(self, number: int) -> str:
        """Suffix for the name of result ``number``; empty for an only result."""
        return str(number) if self.unpack else ""

    def nested(self, results: Sequence[Tensor | Complex]) -> tuple[Lowered, ...]:
        """Nest a call's results as the operator returns them, with sizes and None in their positions."""
        left = iter(results)
        return tuple(self._nested(value, left) for value in self.node.meta["val"])

    def _nested(self, value: object, left: Iterator[Tensor | Complex]) -> Lowered:
        if isinstance(value, list | tuple):
            return tuple(self._nested(each, left) for each in value)
        tensor = next(left)
        if isinstance(value, torch.Tensor):
            return tensor
        return self.builder.symbols.size(value) if isinstance(value, int | torch.SymInt) else None

    @property
    def named_arguments(self) -> dict[str, Any]:
        """Arguments of the FX node by schema name; defaults are left out."""
        target = self.node.target
        assert isinstance(target, torch._ops.OpOverload), "only ATen overloads have a schema"
        names = [a.name for a in target._schema.arguments]
        return {**dict(zip(names, self.node.args)), **self.node.kwargs}

    def error(self, message: str, *, hint: str = "") -> LitzError:
        """Make an error that names this node and the user's source line; the caller raises it."""
        name = self.origin.node
        if isinstance(self.node.target, torch._ops.OperatorBase):
            hint = hint or f"add {name!r} to LoweringOptions.force_extern to run it as an ATen call"
        hint = hint or "this graph runs as ATen operations"
        return UnsupportedOperation(message, node=name, origin=self.origin, hint=hint)

    # --- types and names ----------------------------------------

    def temporary(self, dtype: DType, shape: Sequence[Size], device: Device | None = None) -> TensorType:
        """Type of an intermediate: contiguous, with a layout that later passes may change."""
        return tensor_type(dtype, *shape, device=device or self._device())

    def _device(self) -> Device:
        for kind in self.outputs:
            if kind is not None:
                return kind.device
        raise self.error("no result has a device to compute on")

    def absent(self) -> TensorType:
        """Type of a result that is None where the operator may return a tensor. Nothing reads it."""
        return tensor_type(f32, 0)

    def value(self, kind: TensorType, name: str = "", *, is_complex: bool = False) -> Value:
        """Make a value named after the node and ``name``; with ``is_complex``, one that a call returns as a
        complex tensor."""
        own = self.node.name
        make = ComplexValue if is_complex else Value
        return make(
            self.builder.unique(f"{own}_{name}") if name else self.builder.unique(own, own=True), kind
        )

    def simplify(self, term: Size, axes: Sequence[Axis]) -> Size:
        """Simplify a term under the ranges of ``axes`` and of the graph's symbols."""
        return self.builder.simplifier(tuple(axes)).simplify(term)

    def append(self, operation: Operation) -> None:
        """Append an operation."""
        self.builder.append(operation)
