"""Attention that a graph spells as two matmuls around a softmax, as one loop that keeps no scores in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from litz_ir.contraction import MATMULS, MatmulCall
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
    Value,
    View,
    tensor_type,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import (
    Expr,
    Load,
    NestedReduction,
    cast,
    const,
    loads,
    normalized,
    op,
    substitute_expr,
    transform,
)
from litz_ir.symbols import Simplifier, free_symbols, symbol
from litz_ir.target import Capabilities
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import (
    VersionDeadlines,
    axis_ranges,
    element_axes,
    named,
    output_names,
    readers_by_value,
)
from litz_scheduler.library.attention.softmax_search import (
    DEPTH,
    MAX_HEAD,
    ON_CPU,
    ON_GPU,
    SUMMED,
    SoftmaxSearch,
    plain_matmul,
)
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class FuseAttention:
    """Replace ``softmax(scores(Q @ K)) @ V`` by one softmax-weighted sum of values.

    Whatever loops do to the scores (scales, masks, biases, caps) becomes part of the sum's body. This is the form to
    which ATen decomposes ``scaled_dot_product_attention``, in f32, where none of its kernels takes the mask or the
    strides; bf16 and f16 are multiplied exactly in f32, and f32 on CPUs. Applies where nothing else reads scores or
    weights.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """``fuse`` turns the pass off."""
    name: str = "fuse-attention"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        kinds = {
            device.kind: known.is_gpu
            for device, known in context.capabilities.items()
            if known.nested_reductions and (known.is_gpu or self._has_blocks(known))
        }
        if not kinds or not self.options.fuse:
            return data
        finder: _Finder | None = None
        replaced: dict[str, tuple[Operation, ...]] = {}
        dropped: set[str] = set()
        for position, operation in enumerate(data.operations):
            if not _may_weight_values(operation, kinds):
                continue
            finder = finder or _Finder(data, kinds)
            found = finder.at(operation, position)
            if found is not None:
                replaced[operation.name] = found.loops
                dropped |= found.dropped
                context.decide(Decision("library", operation.name, "generate", reasons.LIBRARY_ATTENTION))
        if not replaced:
            return data
        operations: list[Operation] = []
        for operation in data.operations:
            if operation.name in replaced:
                operations += replaced[operation.name]
            elif not dropped.issuperset(value.name for value in operation.results):
                operations.append(operation)
        return data.with_operations(tuple(operations))

    def _has_blocks(self, machine: Capabilities) -> bool:
        """Return whether a CPU computes attention in blocks, and may choose that by the number of queries."""
        return machine.blocked_attention and not self.options.batch_invariant


def _may_weight_values(operation: Operation, kinds: Iterable[str]) -> bool:
    """Return whether an operation is a batched matmul on a device of one of these kinds."""
    if not isinstance(operation, ContractionCall) or operation.target not in MATMULS:
        return False
    return operation.results[0].type.device.kind in kinds and len(operation.results[0].type.shape) == 3


@dataclass(frozen=True, slots=True)
class _Fused:
    """The loops that replace an attention."""

    loops: tuple[Operation, ...]
    """The loops, at the place of the matmul with V."""
    dropped: frozenset[str]
    """Values that nothing reads any more."""


class _Finder:
    """Matches attention in one graph."""

    def __init__(self, graph: LoopGraph, kinds: Mapping[str, bool]) -> None:
        self._symbols = graph.symbols
        self._is_gpu = kinds
        self._values = graph.values()
        self._producers = {value.name: o for o in graph.operations for value in o.results}
        self._readers = readers_by_value(graph)
        self._returned = output_names(graph)
        self._versions = VersionDeadlines(graph)

    def at(self, operation: Operation, position: int) -> _Fused | None:
        """Return the loops of an attention whose matmul with V is ``operation``; ``None`` for other matmuls."""
        assert isinstance(operation, ContractionCall)
        weighting = plain_matmul(operation, self._values)
        if weighting is None:
            return None
        on_gpu = self._is_gpu[weighting.result.type.device.kind]
        if not on_gpu and not isinstance(weighting.result.type.shape[1], int):
            return None
        search = SoftmaxSearch(
            self._producers, self._values, self._simplifier(weighting), ON_GPU if on_gpu else ON_CPU
        )
        softmax = search.softmax(weighting)
        scores = None if softmax is None else search.scores(softmax.score)
        if softmax is None or scores is None:
            return None
        matmul, load = scores
        axes = search.axes
        batch, row, key = (0 if axis.size == 1 else symbol(axis.name) for axis in axes)
        if tuple(load.index[1:]) != (row, key):
            return None
        element = symbol(DEPTH)
        query = search.operand(matmul.a, (load.index[0], row, element))
        keys = search.operand(matmul.b, (load.index[0], element, key))
        values = search.operand(weighting.b, (batch, key, symbol("i2")))
        if query is None or keys is None or values is None or values.scale != 1:
            return None
        if len({each.load.dtype for each in (query, keys, values)}) != 1:
            return None
        dropped = self._interior(search.visited, load.buffer, operation)
        if dropped is None:
            return None
        depth = matmul.a.type.shape[2]
        summed = NestedReduction(((DEPTH, depth),), op("mul", cast(query.load, f32), cast(keys.load, f32)))
        scale = query.scale * keys.scale
        scaled = summed if scale == 1 else op("mul", summed, const(scale, f32))
        score = transform(softmax.score, lambda node: cast(scaled, load.dtype) if node is load else node)
        bodies = cast(score, f32), cast(values.load, f32)
        if not all(self._is_readable(each.buffer, position) for each in loads(*bodies)):
            return None
        return self._loops(operation, weighting, bodies, softmax.safe, dropped)

    def _simplifier(self, weighting: MatmulCall) -> Simplifier:
        batch, rows, columns = weighting.result.type.shape
        keys = weighting.a.type.shape[2]
        sizes = {"i0": batch, "i1": rows, "i2": columns, SUMMED: keys, DEPTH: MAX_HEAD}
        return Simplifier(axis_ranges((Axis(*each) for each in sizes.items()), self._symbols))

    def _is_readable(self, name: str, position: int) -> bool:
        """Return whether a value is not yet overwritten at a position of the graph."""
        deadline = self._versions.deadline(name)
        return deadline is None or position < deadline

    def _interior(self, visited: Iterable[str], scores: str, last: Operation) -> frozenset[str] | None:
        """Return the values computed from the scores up to ``last``; ``None`` where something else reads one."""
        names, found, waiting = {*visited, scores}, set[str](), [scores]
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            if name in self._returned or name not in names:
                return None
            found.add(name)
            for reader in self._readers[name]:
                if reader is not last:
                    waiting += [value.name for value in reader.results]
        return frozenset(found)

    def _loops(
        self,
        operation: ContractionCall,
        weighting: MatmulCall,
        bodies: tuple[Expr, Expr],
        safe: bool,
        dropped: frozenset[str],
    ) -> _Fused:
        """Return the reduction over the keys and the loop of the weighted means.

        They run over the axes of a view of the result where only that is read, such as batches and heads.
        """
        result, view = weighting.result, self._only_view(weighting.result)
        axes = element_axes(result.type)
        if view is not None:
            result, axes = view.results[0], view.axes
            points = named(element_axes(weighting.result.type), view.index)
            ranges = axis_ranges((*axes, Axis(SUMMED, weighting.a.type.shape[2])), self._symbols)
            simplify = Simplifier(ranges).simplify
            score, value = (
                transform(substitute_expr(each, points), lambda node: node, simplify) for each in bodies
            )
            bodies = score, value
        shape, device = tuple(axis.size for axis in axes), result.type.device
        *lead, _ = at = tuple(symbol(axis.name) for axis in axes)
        maximum, total = (
            Value(f"{operation.name}.{part}", tensor_type(f32, *shape[:-1], 1, device=device))
            for part in ("max", "total")
        )
        weighted = Value(f"{operation.name}.weighted", tensor_type(f32, *shape, device=device))
        reduction = Reduction(
            results=(maximum, total, weighted), axes=axes,
            reduce_axes=(Axis(SUMMED, weighting.a.type.shape[2]),),
            combiner=NamedCombiner("softmax_sum"), bodies=bodies, origin=operation.origin,
        )  # fmt: skip
        sums = Load(weighted.name, at, f32), Load(total.name, (*lead, 0), f32)
        mean = normalized(*sums) if safe else op("div", *sums)
        dtype = weighting.result.type.dtype
        loop = Pointwise(results=(result,), axes=axes, bodies=(cast(mean, dtype),), origin=operation.origin)
        return _Fused((reduction, loop), dropped | {weighting.result.name, result.name})

    def _only_view(self, result: Value) -> View | None:
        """Return the only reader of a result that is a view with its rows and columns last; ``None`` without one."""
        readers = self._readers[result.name]
        if len(readers) != 1 or result.name in self._returned or not isinstance(readers[0], View):
            return None
        view = readers[0]
        if view.results[0].type.dtype != result.type.dtype or len(view.axes) < 3 or len(view.index) != 3:
            return None
        last = tuple(symbol(axis.name) for axis in view.axes[-2:])
        names = {axis.name for axis in view.axes[:-2]}
        return view if tuple(view.index[1:]) == last and free_symbols(view.index[0]) <= names else None
