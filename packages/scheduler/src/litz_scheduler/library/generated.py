"""Products of matrices as loops, where that was asked for: what surrounds them can then run in their kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from litz_ir.dtypes import DType, bf16, f16, f32
from litz_ir.fused.decision import Decision
from litz_ir.loops.nodes import (
    Argument,
    Axis,
    Contraction,
    Kind,
    LoopGraph,
    Operation,
    Pointwise,
    Reduction,
    Ref,
    TensorType,
    Value,
)
from litz_ir.passes.base import PassContext
from litz_ir.scalar.build import cast, const, op
from litz_ir.scalar.expr import Expr, Load, Op
from litz_ir.symbols.term import Size, symbol
from litz_scheduler.legality.product import graphics
from litz_scheduler.options import Precision, SchedulerOptions

PRODUCTS: Mapping[str, int] = MappingProxyType(
    {
        "aten.mm.default": 0, "aten.mm.dtype": 0, "aten.bmm.default": 0, "aten.bmm.dtype": 0,
        "aten.addmm.default": 1, "aten.addmm.dtype": 1, "aten.baddbmm.default": 1, "aten.baddbmm.dtype": 1,
    }
)  # fmt: skip
"""The calls that loops can stand for, and how many addends come before their factors."""

FACTORS = (bf16, f16, f32)
"""The dtypes whose products every library sums in f32."""


@dataclass(frozen=True, slots=True)
class GeneratedProducts:
    """Let a product on a GPU be a sum in f32 and, rounded once like a library's, what is made of it."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "generated-products"
    ulp: int = 64

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if not self.options.generated_products:
            return data
        kinds, values = graphics(context), data.values()
        operations: list[Operation] = []
        for operation in data.operations:
            made = self._loops(operation, values, kinds)
            if made:
                note = "TF32" if _multiplies(made[0]) == "mul_tf32" else ""
                decision = Decision("library", operation.name, "generate", "library.generated", note=note)
                context.decide(decision)
            operations.extend(made or (operation,))
        return data.with_operations(tuple(operations))

    def _loops(
        self, operation: Operation, values: Mapping[str, Value], kinds: frozenset[str]
    ) -> tuple[Operation, ...]:
        """What computes a product instead of its call; nothing where that stays."""
        if not isinstance(operation, Contraction) or not self._asked_for(operation):
            return ()
        call = _call(operation, values)
        if call is None or operation.results[0].type.device.kind not in kinds:
            return ()
        return _as_loops(operation, call, self.options.product_precision)

    def _asked_for(self, operation: Contraction) -> bool:
        asked = {"all", operation.name, operation.origin.node} & self.options.generated_products
        return bool(asked) and operation.target in PRODUCTS


@dataclass(frozen=True, slots=True)
class _Call:
    """``beta * addend + alpha * left @ right``; no addend where it is not read."""

    left: Value
    right: Value
    addend: Value | None
    alpha: float
    beta: float


def _call(product: Contraction, values: Mapping[str, Value]) -> _Call | None:
    """What a call computes, where loops can compute it."""
    named = [values[each.name] for each in product.arguments if type(each) is Ref]
    others = [each for each in product.arguments if type(each) is not Ref]
    scales = _scales(dict(product.attributes))
    if scales is None or len(named) != PRODUCTS[product.target] + 2:
        return None
    *addends, left, right = named
    wanted = product.results[0].type.dtype
    if not all(isinstance(each, DType) for each in others) or left.type.dtype not in FACTORS:
        return None
    if left.type.dtype != right.type.dtype or wanted not in (left.type.dtype, f32):
        return None
    if any(each.type.dtype not in FACTORS for each in addends):
        return None
    alpha, beta = scales
    # What is multiplied by zero is not looked at, as in the libraries: it may hold anything.
    return _Call(left, right, addends[0] if addends and beta != 0 else None, alpha, beta)


def _scales(attributes: dict[str, Argument]) -> tuple[float, float] | None:
    """``alpha`` and ``beta`` where they are numbers and nothing else is asked for."""
    alpha, beta = attributes.pop("alpha", 1), attributes.pop("beta", 1)
    if attributes or not isinstance(alpha, int | float) or not isinstance(beta, int | float):
        return None
    return float(alpha), float(beta)


def _as_loops(product: Contraction, call: _Call, precision: Precision) -> tuple[Operation, ...]:
    (result,) = product.results
    multiply = "mul_tf32" if precision == "tf32" and call.left.type.dtype == f32 else "mul"
    type_ = result.type
    plain = call.addend is None and call.alpha == 1
    layout = replace(type_.layout, fixed=False)
    total = Value(f"{product.name}.sum", replace(type_, dtype=f32, layout=layout))
    if plain and type_.dtype == f32:
        return (_sum(product, call, result, multiply),)
    axes = _axes(type_)
    points = tuple(symbol(axis.name) for axis in axes)
    body: Expr = Load(total.name, points, f32)
    if call.alpha != 1:
        body = op("mul", body, const(call.alpha, f32))
    if call.addend is not None:
        added = _addend(call.addend, points)
        body = op("add", body, added if call.beta == 1 else op("mul", added, const(call.beta, f32)))
    rounded = Pointwise(
        results=product.results, axes=axes, bodies=(cast(body, type_.dtype),), origin=product.origin
    )
    return _sum(product, call, total, multiply), rounded


def _sum(product: Contraction, call: _Call, total: Value, multiply: str) -> Reduction:
    """The sum over the left factor's last dimension and the right one's last but one, whose elements the operation
    ``multiply`` makes a product of."""
    axes = _axes(total.type)
    *batch, row, column = (symbol(axis.name) for axis in axes)
    inner = Axis("r0", call.left.type.shape[-1])
    k = symbol(inner.name)
    left = Load(call.left.name, (*batch, row, k), call.left.type.dtype)
    right = Load(call.right.name, (*batch, k, column), call.right.type.dtype)
    body = op(multiply, cast(left, f32), cast(right, f32))
    return Reduction(
        results=(total,), axes=axes, reduce_axes=(inner,), combiner=Kind("sum"), bodies=(body,),
        origin=product.origin,
    )  # fmt: skip


def _multiplies(total: Operation) -> str:
    """The operation that makes a sum's products."""
    assert isinstance(total, Reduction) and isinstance(total.bodies[0], Op)
    return total.bodies[0].name


def _axes(type_: TensorType) -> tuple[Axis, ...]:
    return tuple(Axis(f"i{k}", size) for k, size in enumerate(type_.shape))


def _addend(addend: Value, points: tuple[Size, ...]) -> Expr:
    """What is added at a point, broadcast as eager does."""
    shape = addend.type.shape
    own = points[len(points) - len(shape) :]
    index = tuple(0 if size == 1 else at for size, at in zip(shape, own, strict=True))
    return cast(Load(addend.name, index, addend.type.dtype), f32)
