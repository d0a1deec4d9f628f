"""Products of matrices as loops, where that was asked for: what surrounds them can then run in their kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from litz_ir.contraction import F8, MATMULS, MatmulCall, matmul_call
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
    TensorType,
    Value,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, Load, cast, const, op
from litz_ir.symbols import Size, SymbolTable, symbol
from litz_ir.target import Capabilities
from litz_scheduler.library.grouped_gemm import grouped_gemm_loops, row_groups_of
from litz_scheduler.options import SchedulerOptions

NOTES: Mapping[str, str] = MappingProxyType({"mul_tf32": "TF32", "mul_f8": "fp8", "mul_f8_fast": "fp8, fast"})
"""What explaining says of how precise the products are that an operation makes."""


@dataclass(frozen=True, slots=True)
class GeneratedMatmuls:
    """Let a product on a GPU be a sum, in f32 or for integers in i32, and, rounded once like a library's, what is made
    of it."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "generated-matmuls"
    ulp: int = 64

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if not self.options.generated_matmuls:
            return data
        devices = {device.kind: known for device, known in context.capabilities.items() if known.sm_count > 0}
        values = data.values()
        operations: list[Operation] = []
        for operation in data.operations:
            multiply, made = self._loops(operation, values, devices, data.symbols)
            if made:
                note = NOTES.get(multiply, "")
                decision = Decision("library", operation.name, "generate", "library.generated", note=note)
                context.decide(decision)
            operations.extend(made or (operation,))
        return data.with_operations(tuple(operations))

    def _loops(
        self,
        operation: Operation,
        values: Mapping[str, Value],
        devices: Mapping[str, Capabilities],
        symbols: SymbolTable,
    ) -> tuple[str, tuple[Operation, ...]]:
        """What computes a product instead of its call, and the operation that multiplies; nothing where the call
        stays."""
        if not isinstance(operation, ContractionCall) or not self._asked_for(operation):
            return "", ()
        device = devices.get(operation.results[0].type.device.kind)
        call = matmul_call(operation, values)
        if device is None or call is None:
            return "", ()
        multiply = self._multiplication(call, device)
        if call.offsets is None:
            return multiply, _as_loops(operation, call, multiply)
        groups = row_groups_of(operation, call, symbols)
        return multiply, () if groups is None else grouped_gemm_loops(groups, call, multiply)

    def _asked_for(self, operation: ContractionCall) -> bool:
        return operation.target in MATMULS and self.options.generates(operation.name, operation.origin.node)

    def _multiplication(self, call: MatmulCall, device: Capabilities) -> str:
        """The operation that makes products of elements: how precise a library's sums of them are."""
        dtype = call.a.type.dtype
        if dtype in F8 and device.fp8_matmul:
            return "mul_f8_fast" if call.fast else "mul_f8"
        return "mul_tf32" if dtype == f32 and self.options.matmul_precision == "tf32" else "mul"


def _as_loops(product: ContractionCall, call: MatmulCall, multiply: str) -> tuple[Operation, ...]:
    """The sum, and the result that the epilogue makes of it, rounded once."""
    type_, epilogue = call.result.type, call.epilogue
    layout = replace(type_.layout, fixed=False)
    total = Value(f"{product.name}.sum", replace(type_, dtype=call.accumulator, layout=layout))
    if epilogue.is_identity and type_.dtype == call.accumulator:
        return (_sum(product, call, call.result, multiply),)
    axes = _axes(type_)
    points = tuple(symbol(axis.name) for axis in axes)
    body: Expr = Load(total.name, points, call.accumulator)
    if epilogue.alpha != 1:
        body = op("mul", body, const(epilogue.alpha, f32))
    for scale in epilogue.scales:
        body = op("mul", body, _broadcast(scale, points))
    if epilogue.bias is not None:
        added = _broadcast(epilogue.bias, points)
        body = op("add", body, added if epilogue.beta == 1 else op("mul", added, const(epilogue.beta, f32)))
    rounded = Pointwise(
        results=product.results, axes=axes, bodies=(cast(body, type_.dtype),), origin=product.origin
    )
    return _sum(product, call, total, multiply), rounded


def _sum(product: ContractionCall, call: MatmulCall, total: Value, multiply: str) -> Reduction:
    """The sum over K of the products that the operation ``multiply`` makes."""
    nest = call.nest(multiply)
    return Reduction(
        results=(total,), axes=nest.outer, reduce_axes=nest.k, combiner=NamedCombiner("sum"), bodies=(nest.product,),
        origin=product.origin,
    )  # fmt: skip


def _axes(type_: TensorType) -> tuple[Axis, ...]:
    return tuple(Axis(f"i{k}", size) for k, size in enumerate(type_.shape))


def _broadcast(value: Value, points: tuple[Size, ...]) -> Expr:
    """What a value is in f32 at a point, broadcast as eager does."""
    shape = value.type.shape
    own = points[len(points) - len(shape) :]
    index = tuple(0 if size == 1 else at for size, at in zip(shape, own, strict=True))
    return cast(Load(value.name, index, value.type.dtype), f32)
