"""How precisely bodies multiply what they sum themselves: as the library's products of matrices do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from litz_ir.contraction import cast_from
from litz_ir.dtypes import f32
from litz_ir.loops import LoopGraph, Operation, Pointwise, Reduction, Scatter
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, NestedReduction, Op, op, transform
from litz_scheduler.legality.matmul import gpu_kinds, has_nested_reductions
from litz_scheduler.options import SchedulerOptions

EXACT_OPERAND_BITS = 16
"""The most bits of floats whose products are exact in f32."""


@dataclass(frozen=True, slots=True)
class NestedReductionPrecision:
    """Say of products of f32 that bodies sum on a GPU that their factors may be rounded to TF32, where the options say
    so of the host's: attention written as products of matrices would be rounded too."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "nested-reduction-precision"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if self.options.matmul_precision != "tf32":
            return data
        kinds = gpu_kinds(context)
        return data.with_operations(
            tuple(_rounded(each) if _multiplies(each, kinds) else each for each in data.operations)
        )


def _multiplies(operation: Operation, kinds: frozenset[str]) -> bool:
    return has_nested_reductions(operation) and operation.results[0].type.device.kind in kinds


def _rounded(operation: Operation) -> Operation:
    """An operation whose bodies round what they multiply."""
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
    return source is not None and source.bits <= EXACT_OPERAND_BITS
