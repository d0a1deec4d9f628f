"""The gradient of attention as loops: sums over the keys and over the queries, of scores computed again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from litz_ir.dtypes import f32
from litz_ir.loops import Axis, NamedCombiner, Operation, Reduction, TensorType, Value, tensor_type
from litz_ir.scalar import Expr, Load, QueryKeyPoint, cast, const, op, where
from litz_ir.symbols import Size, symbol
from litz_scheduler.library.attention_calls import AttentionGradientCall
from litz_scheduler.library.attention_scores import AttentionScores, axes_of, loop

ScoreTerm = Callable[[QueryKeyPoint], Expr]
"""What a query and a key have to do with one another."""


def attention_gradient_loops(operation: Operation, call: AttentionGradientCall) -> tuple[Operation, ...]:
    """The sums that a gradient is made of, the gradients, and zeros for results that say nothing."""
    of_queries, of_keys, of_values, *others = operation.results
    sums = _Sums(operation, call)
    nothing = (loop(operation, other, const(0, other.type.dtype)) for other in others)
    own = call.call
    return (
        sums.excess(),
        *sums.of_queries(of_queries),
        *sums.of_keys(of_keys, sums.gradient, own.query),
        *sums.of_keys(of_values, sums.weight, call.grad_out),
        *nothing,
    )


class _Sums:
    """What is summed at each point, and loops over it."""

    def __init__(self, operation: Operation, call: AttentionGradientCall) -> None:
        self.operation = operation
        self.gradient_call = call
        self.call = call.call
        self.scores = AttentionScores(call.call)
        self.mean = Value(f"{operation.name}.mean", self._kind(*call.out.type.shape[:3]))

    def excess(self) -> Reduction:
        """What is taken from each row's gradients of weights: the mean that the weights give them."""
        call, axes = self.gradient_call, axes_of(self.mean.type)
        inner = Axis("r0", call.out.type.shape[3])
        at = (*(symbol(axis.name) for axis in axes), symbol(inner.name))
        factors = (cast(Load(each.name, at, each.type.dtype), f32) for each in (call.out, call.grad_out))
        return self._sum(self.mean, axes, (inner,), op("mul", *factors))

    def weight(self, point: QueryKeyPoint) -> Expr:
        """The weight that the softmax gave a key, as precise as values are."""
        return cast(self._weight(point), self.call.query.type.dtype)

    def gradient(self, point: QueryKeyPoint) -> Expr:
        """The gradient of the product of a query and a key, as precise as they are."""
        call = self.gradient_call
        share = self.scores.dot(call.grad_out, self.call.value, point, "e1")
        above = op("sub", share, self.scores.of_query(self.mean, point))
        scaled = op("mul", op("mul", self._weight(point), above), const(self.call.scale, f32))
        return self.scores.if_visible(point, cast(scaled, self.call.query.type.dtype), 0.0)

    def of_queries(self, result: Value) -> tuple[Operation, ...]:
        """The sum over the keys."""
        heads, keys = self.scores.heads(), self.scores.keys()
        batch, _, queries, width = result.type.shape
        total = Value(f"{result.name}.sum", self._kind(batch, *heads.sizes, queries, width))
        axes = axes_of(total.type)
        inner = _summed(keys.sizes)
        b, *indices, m, d = (symbol(axis.name) for axis in axes)
        head, shared = heads.at(indices)
        place = keys.at(b, head, m, tuple(symbol(axis.name) for axis in inner))
        point = QueryKeyPoint(b, head, shared, m, place.position)
        body = place.term(self.gradient(point), self.scores.of_key(self.call.key, point, d))
        b, h, m, d = (symbol(f"i{k}") for k in range(4))
        made = Load(total.name, (b, *heads.divided(h), m, d), f32)
        return self._sum(total, axes, inner, body), self._rounded(result, made)

    def of_keys(self, result: Value, left: ScoreTerm, right: Value) -> tuple[Operation, ...]:
        """The sum over the queries of all heads that share the key."""
        heads, queries = self.scores.heads(), self.scores.queries()
        grouped = heads.group_size != 1
        total = Value(f"{result.name}.sum", self._kind(*result.type.shape))
        axes = axes_of(total.type)
        inner = _summed((*((heads.group_size,) if grouped else ()), *queries.sizes))
        b, shared, n, d = (symbol(axis.name) for axis in axes)
        at = tuple(symbol(axis.name) for axis in inner)
        head = heads.at((shared, at[0]))[0] if grouped else shared
        place = queries.at(b, head, n, at[1:] if grouped else at)
        point = QueryKeyPoint(b, head, shared, place.position, n)
        body = place.term(left(point), self.scores.of_query(right, point, d))
        made = Load(total.name, (b, shared, n, d), f32)
        return self._sum(total, axes, inner, body), self._rounded(result, made)

    def _weight(self, point: QueryKeyPoint) -> Expr:
        logarithm = self.gradient_call.logsumexp
        last = (0,) if len(logarithm.type.shape) == 4 else ()
        whole = self.scores.of_query(logarithm, point, *last)
        share = op("exp", op("sub", self.scores.score(point), whole))
        if self.call.bias is None:
            return share  # a row without keys has infinity, from which nothing is left
        hidden = op("eq", whole, const(-math.inf, f32))
        return where(hidden, const(0.0, f32), share)

    def _kind(self, *shape: Size) -> TensorType:
        return tensor_type(f32, *shape, device=self.operation.results[0].type.device)

    def _rounded(self, result: Value, made: Expr) -> Operation:
        return loop(self.operation, result, cast(made, result.type.dtype))

    def _sum(self, total: Value, axes: Sequence[Axis], inner: Sequence[Axis], body: Expr) -> Reduction:
        return Reduction(
            results=(total,), axes=tuple(axes), reduce_axes=tuple(inner), combiner=NamedCombiner("sum"), bodies=(body,),
            origin=self.operation.origin,
        )  # fmt: skip


def _summed(sizes: Sequence[Size]) -> tuple[Axis, ...]:
    return tuple(Axis(f"r{k}", size) for k, size in enumerate(sizes))
