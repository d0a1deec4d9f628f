"""Separation of a matmul from its bias where a generated kernel that reads the sum can add the bias itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

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
from litz_ir.target import DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import output_names


@dataclass(frozen=True, slots=True)
class UnfuseBias:
    """Replace ``addmm`` on a GPU by ``mm`` and a pointwise addition where only generated kernels read the result.

    The library has more routines for ``mm`` than for ``addmm``, and the readers add the bias in registers. ``f32`` and
    ``f64`` alone: lower precisions would be rounded before the addition.
    """

    name: str = "unfuse-bias"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "gpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        gpus = {device.kind for device, machine in context.capabilities.items() if machine.is_gpu}
        in_memory = _in_memory(data)
        values = data.values()
        operations: list[Operation] = []
        for operation in data.operations:
            types = _bias_types(operation, values) if isinstance(operation, ContractionCall) else None
            if types is None or operation.name in in_memory or types[0].device.kind not in gpus:
                operations.append(operation)
                continue
            assert isinstance(operation, ContractionCall)
            operations += _unfused(operation, *types)
            context.decide(Decision("library", operation.name, "call", reasons.LIBRARY_BIAS))
        return data.with_operations(tuple(operations))


def _bias_types(
    addmm: ContractionCall, values: Mapping[str, Value]
) -> tuple[TensorType, str, TensorType] | None:
    """Return the type of the result, the name of the bias and its type; ``None`` where the pass does not apply."""
    operands = plain_operands(addmm)
    bias = None if operands is None else operands[0]
    if bias is None:
        return None
    type_, bias_type = addmm.results[0].type, values[bias].type
    return (type_, bias, bias_type) if type_.dtype in (f32, f64) and bias_type.dtype == type_.dtype else None


def _unfused(
    addmm: ContractionCall, type_: TensorType, bias: str, bias_type: TensorType
) -> tuple[ContractionCall, Pointwise]:
    matmul = Value(f"{addmm.name}.matmul", type_)
    axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(type_.shape))
    points = tuple(symbol(axis.name) for axis in axes)
    own = points[len(points) - len(bias_type.shape) :]
    index: tuple[Size, ...] = tuple(
        0 if size == 1 else at for size, at in zip(bias_type.shape, own, strict=True)
    )
    body = op("add", Load(matmul.name, points, type_.dtype), Load(bias, index, type_.dtype))
    call = replace(addmm, target="aten.mm.default", results=(matmul,), arguments=addmm.arguments[1:])
    return call, Pointwise(results=addmm.results, axes=axes, bodies=(body,), origin=addmm.origin)


def _in_memory(graph: LoopGraph) -> set[str]:
    """Return the values that outputs, library calls or other operations without a generated kernel read.

    A read of a view counts for its base.
    """
    wanted = set(output_names(graph))
    for operation in reversed(graph.operations):
        if isinstance(operation, View):
            if operation.name in wanted:
                wanted.add(operation.base)
        elif not isinstance(operation, Pointwise | Reduction):
            wanted.update(operation.reads)
    return wanted
