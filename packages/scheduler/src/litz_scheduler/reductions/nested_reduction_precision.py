"""Precision of nested reductions: operands rounded to TF32 where a library's matmul would round them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from litz_ir.contraction import cast_from
from litz_ir.dtypes import f32
from litz_ir.loops import LoopGraph, Operation, Pointwise, Reduction, Scatter
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, NestedReduction, Op, op, transform
from litz_scheduler.legality.matmul import gpu_kinds, has_nested_reductions
from litz_scheduler.options import SchedulerOptions

_EXACT_OPERAND_BITS = 16
"""The widest floats, in bits, that f32 multiplies exactly."""


@dataclass(frozen=True, slots=True)
class NestedReductionPrecision:
    """Round the f32 operands of nested reductions on a GPU to TF32, where the options allow it for matmuls.

    Attention that is written as matmuls would be rounded in the same way.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """``matmul_precision`` turns the pass on."""
    name: str = "nested-reduction-precision"
    """The name of the pass."""
    ulp: int = 0
    """The bound on changed results, in ULP; the rounding itself is requested and does not count."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if self.options.matmul_precision != "tf32":
            return data
        kinds = gpu_kinds(context)
        return data.with_operations(
            tuple(_rounded(each) if _applies(each, kinds) else each for each in data.operations)
        )


def _applies(operation: Operation, kinds: frozenset[str]) -> bool:
    return has_nested_reductions(operation) and operation.results[0].type.device.kind in kinds


def _rounded(operation: Operation) -> Operation:
    """Return the operation with ``mul_tf32`` in its nested reductions."""
    match operation:
        case Pointwise() | Reduction():
            return replace(operation, bodies=tuple(transform(body, _visit) for body in operation.bodies))
        case Scatter():
            return replace(operation, body=transform(operation.body, _visit))
    return operation


def _visit(expr: Expr) -> Expr:
    match expr:
        case NestedReduction(body=Op(name="mul", args=args)) if expr.dtype == f32 and not all(
            map(_is_widened, args)
        ):
            return NestedReduction(expr.axes, op("mul_tf32", *args))
    return expr


def _is_widened(expr: Expr) -> bool:
    source = cast_from(expr)
    return source is not None and source.bits <= _EXACT_OPERAND_BITS
