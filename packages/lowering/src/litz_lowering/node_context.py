"""The node at hand: its results' types, and names and types for what its lowering makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch.fx import Node

from litz_ir.device import Device
from litz_ir.dtypes import DType, f32
from litz_ir.errors import LitzError, UnsupportedOperation
from litz_ir.loops import Axis, ComplexValue, Operation, TensorType, Value, tensor_type
from litz_ir.origin import Origin
from litz_ir.symbols import Size
from litz_lowering.builder import GraphBuilder
from litz_lowering.options import LoweringOptions
from litz_lowering.subgraphs import Subgraphs
from litz_lowering.values import Complex, Lowered, ResultType, Tensor


class NodeContext:
    """The node at hand, and the names and types of what is made for it. Names are made from the node's.

    ``node`` is the FX node; ``outputs`` the types of what it returns, in order (None for what is no tensor);
    ``options`` what the caller chose; ``subgraphs`` lowers what higher-order operators run. ``complex_outputs`` says
    which results are complex: their type is that of the pairs.
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
        """The type of the single result: eager's dtype, shape, strides and device."""
        if len(self.outputs) != 1 or self.outputs[0] is None:
            raise self.error(f"expected one tensor result, found {len(self.outputs)}")
        return self.outputs[0]

    @property
    def unpack(self) -> bool:
        """True when the operator returns a tuple or list."""
        return isinstance(self.node.meta.get("val"), list | tuple)

    def of_result(self, position: int) -> Self:
        """The same node as if it returned that result alone: rules for one tensor then serve operators over lists."""
        return type(self)(
            self.builder, self.node, (self.outputs[position],), self.origin, self.options, self.subgraphs,
            self.complex_outputs[position : position + 1],
        )  # fmt: skip

    def position(self, number: int) -> str:
        """The name of result ``number`` among the node's: nothing for the only one."""
        return str(number) if self.unpack else ""

    def nested(self, results: Sequence[Tensor | Complex]) -> tuple[Lowered, ...]:
        """A call's results in the nesting in which the operator returns them, sizes and None in their places."""
        left = iter(results)

        def visit(value: object) -> Lowered:
            if isinstance(value, list | tuple):
                return tuple(map(visit, value))
            tensor = next(left)
            if isinstance(value, torch.Tensor):
                return tensor
            return self.builder.symbols.size(value) if isinstance(value, int | torch.SymInt) else None

        return tuple(map(visit, self.node.meta["val"]))

    @property
    def named_arguments(self) -> dict[str, Any]:
        """The FX node's own arguments by the names that the operator's schema gives them; defaults are left out."""
        target = self.node.target
        assert isinstance(target, torch._ops.OpOverload), "only operators have a schema"
        names = [a.name for a in target._schema.arguments]
        return {**dict(zip(names, self.node.args)), **self.node.kwargs}

    def error(self, message: str, *, hint: str = "") -> LitzError:
        """An error that names this node and the user's line; raise what it returns."""
        name = self.origin.node
        hint = hint or f"litz runs it as ATen when {name!r} is in LoweringOptions.force_extern"
        return UnsupportedOperation(message, node=name, origin=self.origin, hint=hint)

    # --- types and names ----------------------------------------

    def temporary(self, dtype: DType, shape: Sequence[Size], device: Device | None = None) -> TensorType:
        """The type of an intermediate: contiguous, its layout free to change."""
        return tensor_type(dtype, *shape, device=device or self._device())

    def _device(self) -> Device:
        for kind in self.outputs:
            if kind is not None:
                return kind.device
        raise self.error("no result tells which device to compute on")

    def absent(self) -> TensorType:
        """The type that stands where an operator returns None in place of a tensor; nothing reads it."""
        return tensor_type(f32, 0)

    def value(self, kind: TensorType, name: str = "", *, is_complex: bool = False) -> Value:
        """A new value called after the node and ``name``; ``is_complex``: a call returns it as a complex tensor."""
        own = self.node.name
        make = ComplexValue if is_complex else Value
        return make(
            self.builder.unique(f"{own}_{name}") if name else self.builder.unique(own, own=True), kind
        )

    def simplify(self, term: Size, axes: Sequence[Axis]) -> Size:
        """The term under the ranges of ``axes`` and of the graph's symbols."""
        return self.builder.simplifier(tuple(axes)).simplify(term)

    def append(self, operation: Operation) -> None:
        """Add an operation that was made by hand."""
        self.builder.append(operation)
