"""Attention that a graph spells as two matmuls around a softmax, as one loop that keeps no scores in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from litz_ir.contraction import MATMULS, MatmulCall, matmul_call
from litz_ir.dtypes import DType, bf16, f16, f32
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
    View,
    tensor_type,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import (
    Const,
    Expr,
    Load,
    NestedReduction,
    Op,
    cast,
    const,
    loads,
    normalized,
    op,
    substitute_expr,
    transform,
)
from litz_ir.symbols import Simplifier, Size, free_symbols, symbol
from litz_ir.target import Capabilities
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import (
    VersionDeadlines,
    axis_ranges,
    element_axes,
    named,
    output_names,
    readers_by_value,
    viewed,
)
from litz_scheduler.options import SchedulerOptions

_ON_GPU, _ON_CPU = (bf16, f16), (bf16, f16, f32)
"""The dtypes of queries, keys and values: CPUs multiply in f32, tensor cores narrow ones exactly, and sum in f32."""

_MAX_HEAD = 256
"""The largest head dimension, in elements: a tile holds a whole head."""

_MIN_KEYS = 16
"""The fewest keys: a tile of tensor cores."""

_MIN_ROWS = 16
"""The fewest queries on a CPU: the lanes of a vector."""

_SUMMED, _DEPTH = "r0", "e0"
"""Names of the axes over keys and over the elements of a head."""


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


@dataclass(frozen=True, slots=True)
class _Softmax:
    """A softmax over the last axis of the weights."""

    score: Expr
    """The scores, over the axes of the weights."""
    safe: bool
    """True where a row whose scores are all minus infinity has zero weights, false where they are NaN."""


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of a matmul: elements in memory, times a number."""

    load: Load
    scale: float


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
        weighting = _plain_matmul(operation, self._values)
        if weighting is None:
            return None
        on_gpu = self._is_gpu[weighting.result.type.device.kind]
        if not on_gpu and not _fills_block(weighting.result.type.shape[1]):
            return None
        search = _Search(
            self._producers, self._values, self._simplifier(weighting), _ON_GPU if on_gpu else _ON_CPU
        )
        softmax = search.softmax(weighting)
        scores = None if softmax is None else search.scores(softmax.score)
        if softmax is None or scores is None:
            return None
        matmul, load = scores
        axes = search.axes
        batch, row, key = (symbol(axis.name) for axis in axes)
        if tuple(load.index[1:]) != (row, key):
            return None
        element = symbol(_DEPTH)
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
        summed = NestedReduction(((_DEPTH, depth),), op("mul", cast(query.load, f32), cast(keys.load, f32)))
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
        sizes = {"i0": batch, "i1": rows, "i2": columns, _SUMMED: keys, _DEPTH: _MAX_HEAD}
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
            ranges = axis_ranges((*axes, Axis(_SUMMED, weighting.a.type.shape[2])), self._symbols)
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
            reduce_axes=(Axis(_SUMMED, weighting.a.type.shape[2]),),
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


class _Search:
    """Expansion of the loads of one matmul's operands into the loops and views that compute them."""

    def __init__(
        self,
        producers: Mapping[str, Operation],
        values: Mapping[str, Value],
        simplifier: Simplifier,
        dtypes: Sequence[DType],
    ) -> None:
        self.visited: set[str] = set()
        """Values whose definitions were expanded."""
        self.axes: tuple[Axis, ...] = ()
        """Batch, rows and keys of the weights."""
        self._producers = producers
        self._values = values
        self._simplifier = simplifier
        self._dtypes = dtypes
        self._size = 0

    def softmax(self, weighting: MatmulCall) -> _Softmax | None:
        """Return the softmax that the first operand of a matmul is; ``None`` for other operands."""
        shape, size = weighting.a.type.shape, _known_size(weighting.a.type)
        keys = shape[2]
        if size is None or not isinstance(keys, int) or keys < _MIN_KEYS:
            return None
        if not _suits(weighting.result.type.shape[2]):
            return None
        self._size = size
        self.axes = tuple(Axis(name, extent) for name, extent in zip(("i0", "i1", _SUMMED), shape))
        points = tuple(symbol(axis.name) for axis in self.axes)
        weight = _without_casts(self._expanded(Load(weighting.a.name, points, weighting.a.type.dtype)))
        masked_maximum: Load | None = None
        if isinstance(weight, Op) and weight.name == "where":
            condition, empty, weight = weight.args
            masked_maximum = _compared_with_minus_infinity(condition)
            if masked_maximum is None or not isinstance(empty, Const) or empty.value != 0:
                return None
            weight = _without_casts(weight)
        if not isinstance(weight, Op) or weight.name != "div":
            return None
        exponential, total = map(_without_casts, weight.args)
        if not isinstance(exponential, Op) or exponential.name != "exp" or not isinstance(total, Load):
            return None
        difference = exponential.args[0]
        if not isinstance(difference, Op) or difference.name != "sub":
            return None
        score, maximum = difference.args[0], _without_casts(difference.args[1])
        if not isinstance(maximum, Load) or (masked_maximum is not None and masked_maximum is not maximum):
            return None
        if self._reduced(maximum, "max") is not score or self._reduced(total, "sum") is not exponential:
            return None
        return _Softmax(score, masked_maximum is not None)

    def scores(self, score: Expr) -> tuple[MatmulCall, Load] | None:
        """Return the only matmul among the loads of a score, and its load; ``None`` where there is another number."""
        found = [
            (matmul, load)
            for load in loads(score)
            if isinstance(call := self._producers.get(load.buffer), ContractionCall)
            and (matmul := _plain_matmul(call, self._values)) is not None
            and _known_size(matmul.result.type) == self._size
        ]
        return found[0] if len(found) == 1 and _suits(found[0][0].a.type.shape[2]) else None

    def operand(self, value: Value, index: tuple[Size, ...]) -> _Operand | None:
        """Return the elements, of a dtype that is multiplied, that an operand is a multiple of; ``None`` for others.

        The elements are those nearest to memory: views, copies and casts to f32 are looked through.
        """
        node: Expr = Load(value.name, index, value.type.dtype)
        found, scale = None, 1.0
        while True:
            if isinstance(node, Load):
                if node.dtype in self._dtypes:
                    found = _Operand(node, scale)
                body = self._definition(node)
                if body is None or (node.dtype in self._dtypes and not isinstance(body, Load)):
                    return found
                node = body
            elif isinstance(node, Op) and node.name == "cast" and node.args[0].dtype in self._dtypes:
                node = node.args[0]
            elif (scaled := _scaled(node)) is not None:
                node, scale = scaled[0], scale * scaled[1]
            else:
                return found

    def _expanded(self, root: Expr) -> Expr:
        """Return an expression with the loads of values as large as the weights replaced by what computes them."""

        def visit(node: Expr) -> Expr:
            if not isinstance(node, Load) or _known_size(self._values[node.buffer].type) != self._size:
                return node
            body = self._definition(node)
            if body is None:
                return node
            self.visited.add(node.buffer)
            return self._expanded(body)

        return transform(root, visit)

    def _definition(self, load: Load) -> Expr | None:
        """Return the body that computes a loaded element; ``None`` where no loop or view of its own does."""
        producer = self._producers.get(load.buffer)
        if isinstance(producer, View):
            axes, body = producer.axes, viewed(producer, self._values[producer.base].type)
        elif isinstance(producer, Pointwise) and len(producer.results) == 1 and not producer.token:
            if producer.results[0].replaces is not None:
                return None
            axes, body = producer.axes, producer.bodies[0]
        else:
            return None
        moved = substitute_expr(body, named(axes, load.index))
        return transform(moved, lambda node: node, self._simplifier.simplify)

    def _reduced(self, load: Load, combiner: str) -> Expr | None:
        """Return what a reduction over the keys combines for a loaded result; ``None`` for other values."""
        producer = self._producers.get(load.buffer)
        if not isinstance(producer, Reduction) or producer.combiner != NamedCombiner(combiner):
            return None
        if len(producer.reduce_axes) != 1 or producer.reduce_axes[0].size != self.axes[2].size:
            return None
        self.visited.add(load.buffer)
        points = {**named(producer.axes, load.index), producer.reduce_axes[0].name: symbol(_SUMMED)}
        body = self._expanded(substitute_expr(producer.bodies[0], points))
        return transform(body, lambda node: node, self._simplifier.simplify)


def _plain_matmul(call: ContractionCall, values: Mapping[str, Value]) -> MatmulCall | None:
    """Return the batched matmul of a call without epilogue; ``None`` for others."""
    if call.target not in MATMULS:
        return None
    found = matmul_call(call, values)
    if found is None or found.offsets is not None or found.b_transposed or not found.epilogue.is_identity:
        return None
    return found if len(found.result.type.shape) == 3 else None


def _without_casts(node: Expr) -> Expr:
    """Return a float expression without the roundings around it."""
    while (
        isinstance(node, Op) and node.name == "cast" and node.dtype.is_float and node.args[0].dtype.is_float
    ):
        node = node.args[0]
    return node


def _compared_with_minus_infinity(condition: Expr) -> Load | None:
    """Return the load that a condition compares with minus infinity; ``None`` for other conditions."""
    if not isinstance(condition, Op) or condition.name != "eq":
        return None
    load, limit = map(_without_casts, condition.args)
    if isinstance(load, Load) and isinstance(limit, Const) and limit.value == float("-inf"):
        return load
    return None


def _scaled(node: Expr) -> tuple[Expr, float] | None:
    """Return an f32 expression that is multiplied by a number, and the number; ``None`` for other expressions."""
    if not isinstance(node, Op) or node.name != "mul" or node.dtype != f32:
        return None
    for one, other in (node.args, node.args[::-1]):
        if isinstance(other, Const):
            return one, float(other.value)
    return None


def _known_size(type_: TensorType) -> int | None:
    """Return the number of elements; ``None`` where it is not known."""
    count = 1
    for size in type_.shape:
        if not isinstance(size, int):
            return None
        count *= size
    return count


def _fills_block(rows: Size) -> bool:
    """Return whether a CPU's block of queries is worth its while."""
    return isinstance(rows, int) and rows >= _MIN_ROWS


def _suits(head: Size) -> bool:
    """Return whether a tile holds a head of this size."""
    return isinstance(head, int) and 1 < head <= _MAX_HEAD
