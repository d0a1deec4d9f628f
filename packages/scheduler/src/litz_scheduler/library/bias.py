"""Addends of matrix products, taken out where a generated kernel that reads the sum can add them on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from litz_ir.contraction import plain_operands
from litz_ir.dtypes import f32, f64
from litz_ir.fused import Decision
from litz_ir.loops import (
    Axis,
    ContractionCall,
    LoopGraph,
    Operation,
    Pointwise,
    Reduction,
    TensorType,
    Value,
    View,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import Load, op
from litz_ir.symbols import Size, symbol
from litz_scheduler.graph_facts import output_names


@dataclass(frozen=True, slots=True)
class UnfuseBias:
    """Let a product on a GPU be a product alone, where only generated kernels read its sum with something else.

    A library chooses among more routines for it, and the sum is made in registers. Narrow floats stay: their product
    would be rounded before the sum.
    """

    name: str = "addends"
    ulp: int = 64

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        graphics = {device.kind for device, machine in context.capabilities.items() if machine.sm_count > 0}
        called = _read_by_calls(data)
        values = data.values()
        operations: list[Operation] = []
        for operation in data.operations:
            parts = _parts(operation, values) if isinstance(operation, ContractionCall) else None
            if parts is None or operation.name in called or parts[0].device.kind not in graphics:
                operations.append(operation)
                continue
            assert isinstance(operation, ContractionCall)
            operations += _taken_apart(operation, *parts)
            context.decide(Decision("library", operation.name, "call", "library.bias"))
        return data.with_operations(tuple(operations))


def _parts(sum_: ContractionCall, values: Mapping[str, Value]) -> tuple[TensorType, str, TensorType] | None:
    """The type of a sum that can be taken apart, its addend and the addend's type."""
    operands = plain_operands(sum_)
    bias = None if operands is None else operands[0]
    if bias is None:
        return None
    made, added = sum_.results[0].type, values[bias].type
    return (made, bias, added) if made.dtype in (f32, f64) and added.dtype == made.dtype else None


def _taken_apart(
    sum_: ContractionCall, made: TensorType, addend: str, added: TensorType
) -> tuple[ContractionCall, Pointwise]:
    product = Value(f"{sum_.name}.product", made)
    axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(made.shape))
    points = tuple(symbol(axis.name) for axis in axes)
    own = points[len(points) - len(added.shape) :]
    index: tuple[Size, ...] = tuple(0 if size == 1 else at for size, at in zip(added.shape, own, strict=True))
    body = op("add", Load(product.name, points, made.dtype), Load(addend, index, made.dtype))
    call = replace(sum_, target="aten.mm.default", results=(product,), arguments=sum_.arguments[1:])
    return call, Pointwise(results=sum_.results, axes=axes, bodies=(body,), origin=sum_.origin)


def _read_by_calls(graph: LoopGraph) -> set[str]:
    """The values that must be in memory, themselves or through views: returned, or read by what is not generated."""
    wanted = set(output_names(graph))
    for operation in reversed(graph.operations):
        if isinstance(operation, View):
            if operation.name in wanted:
                wanted.add(operation.base)
        elif not isinstance(operation, Pointwise | Reduction):
            wanted.update(operation.reads)
    return wanted
