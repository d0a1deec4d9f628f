"""Attention and its gradients as loops that fuse with producers and consumers: on a CPU, and on request on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from litz_ir.dtypes import bf16, f32
from litz_ir.loops import (
    Axis,
    ContractionCall,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    Value,
    tensor_type,
)
from litz_ir.scalar import Load, QueryKeyPoint, cast, const, index, masked, normalized, op, where
from litz_ir.symbols import Size, SymbolTable, symbol
from litz_ir.target import Capabilities
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import estimate
from litz_scheduler.analysis.graph_facts import element_axes
from litz_scheduler.library.attention.attention_calls import (
    ATTENTION_ON_CPU,
    ATTENTIONS,
    GRADIENT_ON_CPU,
    GRADIENTS,
    AttentionCall,
    attention_call,
    gradient_call,
)
from litz_scheduler.library.attention.attention_gradients import attention_gradient_loops
from litz_scheduler.library.attention.attention_scores import AttentionScores, loop
from litz_scheduler.library.strategy import Candidate, Choice, Rewriting
from litz_scheduler.options import SchedulerOptions

_ON_CPU = (ATTENTION_ON_CPU, GRADIENT_ON_CPU)

_LEAST_QUERIES = 16
"""The fewest queries for which blocks are quicker than the routine, in gradients or if their number is a symbol."""


_LARGE_GRADIENT = 1 << 17
"""Elements of a head's queries from which the routine's gradient is as quick in bf16, where the CPU multiplies pairs of
them. It ran 301 GFLOP/s of five matmuls at 1,024 by 128, 211 at 512 by 64; blocks run 400 of seven (Zen 5)."""


@dataclass(frozen=True, slots=True)
class GeneratedAttention:
    """Calls of fused attention as softmax-weighted sums, which keep no scores in memory.

    On a GPU, ``generated_matmuls`` names the calls. On a CPU, all become loops whose kernels compute blocks of scores;
    gradients of few queries have too few rows for a block.

    Gradients become sums over keys and over queries that recompute the scores. A call with dropout, with a bias of
    unknown semantics, or with f32 operands that would be rounded is left to the library.
    """

    options: SchedulerOptions
    """``generated_matmuls`` selects the calls on a GPU."""
    name: str = "generated-attention"
    """The name of the strategy."""

    def candidate(self, call: ContractionCall, rewriting: Rewriting) -> Candidate | None:
        machine = rewriting.machine(call.results[0])
        on_cpu = call.target in _ON_CPU
        runs = self._has_blocks if on_cpu else self._is_requested
        if machine is None or not runs(call, machine, rewriting.graph.symbols):
            return None
        loops = self._loops(call, rewriting.values)
        reason = reasons.LIBRARY_BLOCKS if on_cpu else reasons.LIBRARY_GENERATED
        return Candidate((Choice(call.name, "generate", reason),), lambda: loops) if loops else None

    def _loops(self, operation: ContractionCall, values: Mapping[str, Value]) -> tuple[Operation, ...]:
        """Return the loops that replace a call; empty where it remains."""
        if operation.target in GRADIENTS:
            gradient = gradient_call(operation, values)
            return (
                ()
                if gradient is None or self._rounds_operands(gradient.call)
                else attention_gradient_loops(operation, gradient)
            )
        call = attention_call(operation, values)
        return () if call is None or self._rounds_operands(call) else _as_loops(operation, call)

    def _rounds_operands(self, call: AttentionCall) -> bool:
        return (
            call.routine.rounded and call.query.type.dtype == f32 and self.options.matmul_precision != "ieee"
        )

    def _has_blocks(self, operation: ContractionCall, machine: Capabilities, symbols: SymbolTable) -> bool:
        """Return True for a call whose kernels compute blocks of enough queries."""
        if not machine.blocked_attention:
            return False
        result = operation.results[0].type
        if len(result.shape) != 4:
            return False
        *_, queries, width = result.shape
        widest = self.options.attention_width if result.dtype == f32 else self.options.narrow_attention_width
        if not isinstance(width, int) or width > widest:
            return False
        if operation.target == ATTENTION_ON_CPU and isinstance(queries, int):
            return True
        known = estimate(queries, symbols)
        pairs = result.dtype == bf16 and "avx512_bf16" in machine.features
        if pairs and operation.target == GRADIENT_ON_CPU and known * width >= _LARGE_GRADIENT:
            return False
        return known >= _LEAST_QUERIES

    def _is_requested(self, operation: ContractionCall, machine: Capabilities, _: SymbolTable) -> bool:
        if operation.target not in ATTENTIONS and operation.target not in GRADIENTS:
            return False
        requested = self.options.generates(operation.name, operation.origin.node)
        return requested and machine.is_gpu and machine.nested_reductions


def _as_loops(operation: Operation, call: AttentionCall) -> tuple[Operation, ...]:
    """Return the loops of the output and the logsumexp, and zeros for unspecified results."""
    output, logsumexp, *unspecified = operation.results
    loops = _SoftmaxLoops(operation, call)
    zeros = (loop(operation, result, const(0, result.type.dtype)) for result in unspecified)
    return loops.reduction(), loops.values(output), loops.logsumexp(logsumexp), *zeros


class _SoftmaxLoops:
    """The online softmax over the keys of each row, and the loops that read its results."""

    def __init__(self, operation: Operation, call: AttentionCall) -> None:
        self.operation = operation
        self.call = call
        self.scores = AttentionScores(call)
        self.heads = self.scores.heads()
        batch, _, queries, _ = call.query.type.shape
        device = operation.results[0].type.device

        def value(name: str, width: Size) -> Value:
            shape = (batch, *self.heads.sizes, queries, width)
            return Value(f"{operation.name}.{name}", tensor_type(f32, *shape, device=device))

        self.maximum, self.total = value("max", 1), value("total", 1)
        self.weighted = value("sum", call.value.type.shape[3])

    def reduction(self) -> Reduction:
        """Return the reduction to the maximum, total and softmax-weighted sum of V of each row of scores."""
        scores, keys = self.scores, self.scores.keys()
        axes = element_axes(self.weighted.type)
        summed = tuple(Axis(f"r{k}", size) for k, size in enumerate(keys.sizes))
        b, *indices, m, d = (symbol(axis.name) for axis in axes)
        head, kv_head = self.heads.at(indices)
        key_position = keys.at(b, head, m, tuple(symbol(axis.name) for axis in summed))
        point = QueryKeyPoint(b, head, kv_head, m, key_position.position)
        score = key_position.or_else(scores.score(point), const(float("-inf"), f32))
        value = key_position.read(cast(scores.of_key(self.call.value, point, d), f32), const(0.0, f32))
        return Reduction(
            results=(self.maximum, self.total, self.weighted), axes=axes, reduce_axes=summed,
            combiner=NamedCombiner("softmax_sum"), bodies=(score, value), origin=self.operation.origin,
        )  # fmt: skip

    def values(self, result: Value) -> Pointwise:
        """Return the loop of the output: the weighted sum over the total, rounded; zero in rows without keys."""
        axes = element_axes(result.type)
        b, h, m, d = (symbol(axis.name) for axis in axes)
        at = (b, *self.heads.divided(h), m)
        body = normalized(Load(self.weighted.name, (*at, d), f32), Load(self.total.name, (*at, 0), f32))
        return loop(self.operation, result, cast(body, result.type.dtype))

    def logsumexp(self, result: Value) -> Pointwise:
        """Return the loop of the logsumexp; infinity in rows that only pad the tensor."""
        axes = element_axes(result.type)
        b, h, m, *_ = (symbol(axis.name) for axis in axes)
        at = (b, *self.heads.divided(h), m, 0)
        maximum, total = (Load(each.name, at, f32) for each in (self.maximum, self.total))
        body = op("add", maximum, op("log", total))
        empty = self.call.routine.empty
        if empty > 0:
            body = where(op("gt", total, const(0.0, f32)), body, const(empty, f32))
        elif empty == 0:
            body = where(op("eq", total, const(0.0, f32)), const(empty, f32), body)
        queries = self.call.query.type.shape[2]
        if axes[2].size != queries:
            body = masked(op("lt", index(m), index(queries)), body, const(float("inf"), f32))
        return loop(self.operation, result, body)
