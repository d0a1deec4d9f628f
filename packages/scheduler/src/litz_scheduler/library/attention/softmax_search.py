"""Search for the softmax, the scores and the operands of attention among the loops and views around matmuls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from litz_ir.contraction import MATMULS, MatmulCall, matmul_call
from litz_ir.dtypes import DType, bf16, f16, f32
from litz_ir.loops import (
    Axis,
    ContractionCall,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    TensorType,
    Value,
    View,
)
from litz_ir.scalar import Const, Expr, Load, Op, loads, substitute_expr, transform
from litz_ir.symbols import Simplifier, Size, symbol
from litz_scheduler.analysis.graph_facts import named, viewed

ON_GPU, ON_CPU = (bf16, f16), (bf16, f16, f32)
"""The dtypes of queries, keys and values: CPUs multiply in f32, tensor cores narrow ones exactly, and sum in f32."""

MAX_HEAD = 256
"""The largest head dimension, in elements: a tile holds a whole head."""

_MIN_KEYS = 16
"""The fewest keys: a tile of tensor cores."""

SUMMED, DEPTH = "r0", "e0"
"""Names of the axes over keys and over the elements of a head."""


@dataclass(frozen=True, slots=True)
class Softmax:
    """A softmax over the last axis of the weights."""

    score: Expr
    """The scores, over the axes of the weights."""
    safe: bool
    """True where a row whose scores are all minus infinity has zero weights, false where they are NaN."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a matmul: elements in memory, times a number."""

    load: Load
    scale: float


class SoftmaxSearch:
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

    def softmax(self, weighting: MatmulCall) -> Softmax | None:
        """Return the softmax that the first operand of a matmul is; ``None`` for other operands."""
        shape, size = weighting.a.type.shape, _known_size(weighting.a.type)
        keys = shape[2]
        if size is None or not isinstance(keys, int) or keys < _MIN_KEYS:
            return None
        if not _suits(weighting.result.type.shape[2]):
            return None
        self._size = size
        self.axes = tuple(Axis(name, extent) for name, extent in zip(("i0", "i1", SUMMED), shape))
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
        return Softmax(score, masked_maximum is not None)

    def scores(self, score: Expr) -> tuple[MatmulCall, Load] | None:
        """Return the only matmul among the loads of a score, and its load; ``None`` where there is another number."""
        found = [
            (matmul, load)
            for load in loads(score)
            if isinstance(call := self._producers.get(load.buffer), ContractionCall)
            and (matmul := plain_matmul(call, self._values)) is not None
            and _known_size(matmul.result.type) == self._size
        ]
        return found[0] if len(found) == 1 and _suits(found[0][0].a.type.shape[2]) else None

    def operand(self, value: Value, index: tuple[Size, ...]) -> Operand | None:
        """Return the elements, of a dtype that is multiplied, that an operand is a multiple of; ``None`` for others.

        The elements are those nearest to memory: views, copies and casts to f32 are looked through.
        """
        node: Expr = Load(value.name, index, value.type.dtype)
        found, scale = None, 1.0
        while True:
            if isinstance(node, Load):
                if node.dtype in self._dtypes:
                    found = Operand(node, scale)
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
        points = {**named(producer.axes, load.index), producer.reduce_axes[0].name: symbol(SUMMED)}
        body = self._expanded(substitute_expr(producer.bodies[0], points))
        return transform(body, lambda node: node, self._simplifier.simplify)


def plain_matmul(call: ContractionCall, values: Mapping[str, Value]) -> MatmulCall | None:
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


def _suits(head: Size) -> bool:
    """Return whether a tile holds a head of this size."""
    return isinstance(head, int) and 1 < head <= MAX_HEAD
