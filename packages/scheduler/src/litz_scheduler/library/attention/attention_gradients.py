"""The gradients of attention as reductions over keys and over queries, which recompute the scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from litz_ir.dtypes import f32
from litz_ir.loops import Axis, NamedCombiner, Operation, Reduction, TensorType, Value, tensor_type
from litz_ir.scalar import Expr, Load, QueryKeyPoint, cast, const, op, where
from litz_ir.symbols import Size, symbol
from litz_scheduler.analysis.graph_facts import element_axes
from litz_scheduler.library.attention.attention_calls import AttentionGradientCall
from litz_scheduler.library.attention.attention_scores import AttentionScores, loop

_ScoreTerm = Callable[[QueryKeyPoint], Expr]
"""A scalar for each pair of query and key, such as a softmax weight."""


def attention_gradient_loops(operation: Operation, call: AttentionGradientCall) -> tuple[Operation, ...]:
    """Return the loops for the gradients of Q, K and V: f32 sums, each rounded once.

    Results of ``operation`` beyond these three are unspecified and become zeros.
    """
    grad_query, grad_key, grad_value, *others = operation.results
    sums = _Sums(operation, call)
    unspecified = (loop(operation, other, const(0, other.type.dtype)) for other in others)
    forward = call.call
    return (
        sums.row_mean(),
        *sums.of_queries(grad_query),
        *sums.of_keys(grad_key, sums.gradient, forward.query),
        *sums.of_keys(grad_value, sums.weight, call.grad_out),
        *unspecified,
    )


class _Sums:
    """The sums that the gradients of one call consist of, and the terms that they add."""

    def __init__(self, operation: Operation, call: AttentionGradientCall) -> None:
        self.operation = operation
        self.gradient_call = call
        self.call = call.call
        self.scores = AttentionScores(call.call)
        self.mean = Value(f"{operation.name}.mean", self._kind(*call.out.type.shape[:3]))

    def row_mean(self) -> Reduction:
        """Return the sum of ``out * grad_out`` over each row.

        It is the mean of the gradients of a row's softmax weights under these weights, which the gradient of the
        softmax subtracts.
        """
        call, axes = self.gradient_call, element_axes(self.mean.type)
        inner = Axis("r0", call.out.type.shape[3])
        at = (*(symbol(axis.name) for axis in axes), symbol(inner.name))
        operands = (cast(Load(each.name, at, each.type.dtype), f32) for each in (call.out, call.grad_out))
        return self._sum(self.mean, axes, (inner,), op("mul", *operands))

    def weight(self, point: QueryKeyPoint) -> Expr:
        """Return the softmax weight of a key, rounded as the routine does."""
        return self._as_operand(self._weight(point))

    def gradient(self, point: QueryKeyPoint) -> Expr:
        """Return the gradient of the dot product of a query and a key, rounded as the routine does."""
        call = self.gradient_call
        grad_weight = self.scores.dot(call.grad_out, self.call.value, point, "e1")
        centred = op("sub", grad_weight, self.scores.of_query(self.mean, point))
        scaled = op("mul", op("mul", self._weight(point), centred), const(self.call.scale, f32))
        return self.scores.if_visible(point, self._as_operand(scaled), 0.0)

    def of_queries(self, result: Value) -> tuple[Operation, ...]:
        """Return the loops of the gradient of Q: a sum over keys."""
        heads, keys = self.scores.heads(), self.scores.keys()
        batch, _, queries, width = result.type.shape
        total = Value(f"{result.name}.sum", self._kind(batch, *heads.sizes, queries, width))
        axes = element_axes(total.type)
        inner = _summed(keys.sizes)
        b, *indices, m, d = (symbol(axis.name) for axis in axes)
        head, kv_head = heads.at(indices)
        key_position = keys.at(b, head, m, tuple(symbol(axis.name) for axis in inner))
        point = QueryKeyPoint(b, head, kv_head, m, key_position.position)
        body = key_position.term(self.gradient(point), self.scores.of_key(self.call.key, point, d))
        b, h, m, d = (symbol(f"i{k}") for k in range(4))
        sum_at_point = Load(total.name, (b, *heads.divided(h), m, d), f32)
        return self._sum(total, axes, inner, body), self._rounded(result, sum_at_point)

    def of_keys(self, result: Value, term: _ScoreTerm, query_value: Value) -> tuple[Operation, ...]:
        """Return the loops of the gradient of K or V: a sum over the queries of all heads that use the KV head.

        It adds ``term`` times the element of ``query_value`` at the query.
        """
        heads, queries = self.scores.heads(), self.scores.queries()
        grouped = heads.group_size != 1
        total = Value(f"{result.name}.sum", self._kind(*result.type.shape))
        axes = element_axes(total.type)
        inner = _summed((*((heads.group_size,) if grouped else ()), *queries.sizes))
        b, kv_head, n, d = (symbol(axis.name) for axis in axes)
        at = tuple(symbol(axis.name) for axis in inner)
        head = heads.at((kv_head, at[0]))[0] if grouped else kv_head
        query_position = queries.at(b, head, n, at[1:] if grouped else at)
        point = QueryKeyPoint(b, head, kv_head, query_position.position, n)
        body = query_position.term(term(point), self.scores.of_query(query_value, point, d))
        sum_at_point = Load(total.name, (b, kv_head, n, d), f32)
        return self._sum(total, axes, inner, body), self._rounded(result, sum_at_point)

    def _weight(self, point: QueryKeyPoint) -> Expr:
        logsumexp = self.gradient_call.logsumexp
        last = (0,) if len(logsumexp.type.shape) == 4 else ()
        row_logsumexp = self.scores.of_query(logsumexp, point, *last)
        weight = op("exp", op("sub", self.scores.score(point), row_logsumexp))
        if self.call.bias is None or self.call.routine.empty != -math.inf:
            # The logsumexp of a row without keys is infinity or finite here, so that its weights are zero.
            return weight
        hidden = op("eq", row_logsumexp, const(-math.inf, f32))
        return where(hidden, const(0.0, f32), weight)

    def _as_operand(self, weight: Expr) -> Expr:
        return cast(weight, self.call.query.type.dtype) if self.call.routine.rounded else weight

    def _kind(self, *shape: Size) -> TensorType:
        return tensor_type(f32, *shape, device=self.operation.results[0].type.device)

    def _rounded(self, result: Value, body: Expr) -> Operation:
        return loop(self.operation, result, cast(body, result.type.dtype))

    def _sum(self, total: Value, axes: Sequence[Axis], inner: Sequence[Axis], body: Expr) -> Reduction:
        return Reduction(
            results=(total,), axes=tuple(axes), reduce_axes=tuple(inner), combiner=NamedCombiner("sum"), bodies=(body,),
            origin=self.operation.origin,
        )  # fmt: skip


def _summed(sizes: Sequence[Size]) -> tuple[Axis, ...]:
    return tuple(Axis(f"r{k}", size) for k, size in enumerate(sizes))
