"""How precisely bodies multiply what they sum themselves: as the library's products of matrices do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from litz_ir.contraction import cast_from
from litz_ir.dtypes import f32
from litz_ir.loops import LoopGraph, Operation, Pointwise, Reduction, Scatter
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, Fold, Op, op, transform
from litz_scheduler.legality.product import graphics, holds_products
from litz_scheduler.options import SchedulerOptions

NARROW = 16
"""The most bits of floats whose products are exact in f32."""


@dataclass(frozen=True, slots=True)
class FoldPrecision:
    """Say of products of f32 that bodies sum on a GPU that their factors may be rounded to TF32, where the options say
    so of the host's: attention written as products of matrices would be rounded too."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "fold-precision"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if self.options.product_precision != "tf32":
            return data
        kinds = graphics(context)
        return data.with_operations(
            tuple(_rounded(each) if _multiplies(each, kinds) else each for each in data.operations)
        )


def _multiplies(operation: Operation, kinds: frozenset[str]) -> bool:
    return holds_products(operation) and operation.results[0].type.device.kind in kinds


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
        case Fold(body=Op(name="mul", args=args)) if expr.dtype == f32 and not all(map(_is_widened, args)):
            return Fold(expr.axes, op("mul_tf32", *args))
    return expr


def _is_widened(expr: Expr) -> bool:
    source = cast_from(expr)
    return source is not None and source.bits <= NARROW
