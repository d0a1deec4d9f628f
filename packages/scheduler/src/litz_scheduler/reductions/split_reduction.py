"""Splitting of reductions with few results into two steps, so that all CPU threads or all SMs of a GPU take part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from litz_ir.contraction import MatmulNest
from litz_ir.errors import ConfigError
from litz_ir.fused import Decision
from litz_ir.loops import (
    Axis,
    LoopGraph,
    NamedCombiner,
    Operation,
    Reduction,
    TensorType,
    Value,
    contiguous,
    partial_results_combiner,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import (
    Expr,
    Load,
    Masked,
    Op,
    const,
    index,
    loads,
    masked,
    nested_reductions,
    op,
    substitute_expr,
)
from litz_ir.symbols import Size, SymbolTable, add, floordiv, mod, mul, product, symbol
from litz_ir.target import Capabilities
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import body_cost, estimate, load_count, points
from litz_scheduler.analysis.cost_model import CostModel, ReductionWork, ThresholdCosts
from litz_scheduler.analysis.graph_facts import element_of, has_unaligned_rows, reads_columns
from litz_scheduler.legality.matmul import gpu_kinds, matmul_of

TALL_COLUMN, TALL_RATIO = 512, 4
"""Splitting of columns on a CPU: the fewest elements of a column that is split, and the fewest as a multiple of those
of a row."""

MIN_MATMUL_TILE, MIN_SPLIT, MIN_SCORED_SPLIT = 64, 1024, 256
"""Split-K: the smallest M and N of an efficient tile, the fewest elements of K in a split, and the fewest where each
element is itself a nested reduction, as in attention."""

BLOCK = 64
"""The rows, and the keys, of a block of attention on a CPU."""

_SPLIT_K_RATIO = 4
"""The least ratio of K to the larger of M and N for split-K; below it the second step costs more than is gained."""


@dataclass(frozen=True, slots=True)
class SplitReductions:
    """Replace long reductions by parallel reductions of their splits and a reduction of the partial results."""

    costs: CostModel = field(default_factory=ThresholdCosts)
    """The model that says how many splits are worthwhile."""
    name: str = "split-reductions"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        types = {name: value.type for name, value in data.values().items()}
        operations: list[Operation] = []
        for operation in data.operations:
            steps = self._split(operation, data, types, context) if isinstance(operation, Reduction) else ()
            operations += steps or (operation,)
            if steps:
                note = f"{math.prod(axis.size for axis in steps[1].reduce_axes)} splits"
                context.decide(Decision("split", operation.name, "split", reasons.SPLIT_THREADS, note=note))
        return data.with_operations(tuple(operations))

    def _split(
        self, operation: Reduction, graph: LoopGraph, types: Mapping[str, TensorType], context: PassContext
    ) -> tuple[Reduction, ...]:
        """Return the two steps of a reduction; empty where it is not split."""
        machine = context.machine(operation.results[0].type.device)
        if machine is None or not isinstance(operation.combiner, NamedCombiner):
            return ()
        if not operation.combiner.kind.merges_states and not machine.combines("user"):
            return ()  # partial results merge by an expression
        matmul = matmul_of(operation, gpu_kinds(context))
        if matmul is not None and matmul.nested:
            limit = _split_k(matmul, graph, machine.model.sm_count)
            return _split_nested(operation, limit) if limit > 1 else ()
        if matmul is None and nested_reductions(*operation.bodies):
            return _split_keys(operation, graph, machine, self.costs)
        if not isinstance(points(operation.reduce_axes), int):
            return ()
        if matmul is not None:
            along_outer, limit = True, _split_k(matmul, graph, machine.model.sm_count)
        else:
            along_outer = (machine.is_gpu or _is_tall(operation)) and reads_columns(operation, types)
            limit = self.costs.splits(_work(operation, graph.symbols, types, along_outer), machine)
            if type(limit) is not int:
                raise ConfigError(
                    f"the cost model splits {operation.name} into {limit!r:.60} parts",
                    hint="splits returns an int",
                )
        if limit < 2:
            return ()
        division = _divide(operation.reduce_axes, limit)
        if matmul is not None and _leaves_idle(division, limit):
            division = _divide_flattened(operation.reduce_axes, limit, MIN_MATMUL_TILE)
        return in_two_steps(operation, division, along_outer) if division.splits > 1 else ()


def _work(
    operation: Reduction, symbols: SymbolTable, types: Mapping[str, TensorType], along_outer: bool
) -> ReductionWork:
    """Return a reduction as the cost model sees it."""
    width = operation.results[0].type.dtype.itemsize
    return ReductionWork(
        estimate(points(operation.axes), symbols),
        _inner(operation),
        load_count(*operation.bodies) * width,
        _element_bytes(operation),
        along_outer,
        not along_outer or not _has_unaligned_rows(operation, types),
    )


def _has_unaligned_rows(operation: Reduction, types: Mapping[str, TensorType]) -> bool:
    """Return whether rows of a load, contiguous along the outer axes, start at addresses of any alignment."""
    offsets = ((load, types[load.buffer].layout.element(load.index)) for load in loads(*operation.bodies))
    return any(
        has_unaligned_rows(offset, operation.axes, operation.reduce_axes, load.dtype)
        for load, offset in offsets
    )


def _split_k(matmul: MatmulNest, graph: LoopGraph, sm_count: int) -> int:
    """Return the most splits of K that are worthwhile; 0 where a matmul has enough tiles for all SMs."""
    batch, m, n, k = (
        estimate(points(axes), graph.symbols) for axes in (matmul.batch, matmul.m, matmul.n, matmul.k)
    )
    tiles = batch * -(-m // MIN_MATMUL_TILE)
    tiles *= 1 if matmul.nested else -(-n // MIN_MATMUL_TILE)
    if 2 * tiles > sm_count or k < _SPLIT_K_RATIO * max(m, n):
        return 0
    return min(sm_count // max(tiles, 1), k // (MIN_SCORED_SPLIT if matmul.nested else MIN_SPLIT))


def _inner(operation: Reduction) -> int:
    """Return the number of elements that are reduced to one, which is static."""
    inner = points(operation.reduce_axes)
    assert isinstance(inner, int)
    return inner


def _is_tall(operation: Reduction) -> bool:
    """Return whether columns have many more elements than rows."""
    outer = points(operation.axes)
    return isinstance(outer, int) and _inner(operation) >= max(TALL_COLUMN, TALL_RATIO * outer)


def _element_bytes(operation: Reduction) -> int:
    """Return the time for one element, in bytes that can be read in it."""
    width = sum(value.type.dtype.itemsize for value in operation.results)
    return max(load_count(*operation.bodies) * width, body_cost(*operation.bodies) // 4, 1)


@dataclass(frozen=True, slots=True)
class Division:
    """A division of reduced axes into splits."""

    split_axes: tuple[Axis, ...]
    """The axes that number the splits."""
    inner_axes: tuple[Axis, ...]
    """The axes over the elements of a split."""
    mapping: dict[str, Size]
    """The original axes as terms over the new ones; axes that are unchanged are left out."""
    in_range: Expr | None = None
    """The condition that a point lies on the original axes, where the last split is shorter."""

    @property
    def splits(self) -> int:
        """The number of splits."""
        return math.prod(map(_size, self.split_axes))


def _divide(axes: tuple[Axis, ...], limit: int, free: int | None = None) -> Division:
    """Divide the leading axes into up to ``limit`` equal splits.

    The splits consist of whole axes, at most ``free`` of them, and of a divisor of the next axis.
    """
    count, whole, last = 1, 0, len(axes) if free is None else free
    while whole < last and count * _size(axes[whole]) <= limit:
        count *= _size(axes[whole])
        whole += 1
    split_axes, rest = axes[:whole], axes[whole:]
    divisor = next((n for n in range(limit // count, 1, -1) if rest and _size(rest[0]) % n == 0), 1)
    if divisor == 1:
        return Division(split_axes, rest, {})
    split, inner = Axis(f"{rest[0].name}_split", divisor), Axis(rest[0].name, _size(rest[0]) // divisor)
    mapping: dict[str, Size] = {inner.name: add(mul(symbol(split.name), inner.size), symbol(inner.name))}
    return Division((*split_axes, split), (inner, *rest[1:]), mapping)


def _leaves_idle(division: Division, limit: int) -> bool:
    """Return whether a division has less than three quarters of ``limit`` splits, so that SMs would be idle."""
    return 4 * division.splits < 3 * limit


def _divide_flattened(axes: tuple[Axis, ...], limit: int, multiple: int = 1) -> Division:
    """Divide the flattened axes, of any sizes, into ``limit`` splits.

    Where sizes are static, splits have a multiple of ``multiple`` points and may be fewer.
    """
    total = product(axis.size for axis in axes)
    size = floordiv(add(total, limit - 1), limit)
    if isinstance(total, int) and isinstance(size, int):
        size = -(-size // multiple) * multiple
        limit = -(-total // size)
    split, inner = Axis(f"{axes[0].name}_split", limit), Axis(axes[0].name, size)
    at = add(mul(symbol(split.name), size), symbol(inner.name))
    in_range = op("lt", index(at), index(total))
    mapping: dict[str, Size] = {}
    for axis in axes[:0:-1]:
        mapping[axis.name], at = mod(at, axis.size), floordiv(at, axis.size)
    return Division((split,), (inner,), {**mapping, axes[0].name: at}, in_range)


def _split_nested(operation: Reduction, limit: int) -> tuple[Reduction, ...]:
    """Return the two steps of a reduction of nested reductions, whose tiles lie along the last reduced axis."""
    axes = operation.reduce_axes
    # With a block mask the last two axes are blocks and positions in a block, which are not separated.
    in_blocks = any(isinstance(node, Masked) for body in operation.bodies for node in (body, *body.children))
    known = all(isinstance(axis.size, int) for axis in axes)
    division = _divide(axes, limit, len(axes) - 2 if in_blocks else None) if known else None
    if (
        (division is None or _leaves_idle(division, limit))
        and len(axes) == 1
        and operation.combiner == NamedCombiner("softmax_sum")
    ):
        division = _divide_flattened(axes, limit)
    return in_two_steps(operation, division, True) if division is not None and division.splits > 1 else ()


def _split_keys(
    operation: Reduction, graph: LoopGraph, machine: Capabilities, costs: CostModel
) -> tuple[Reduction, ...]:
    """Return the two steps of attention with fewer heads than threads, whose keys are divided; empty for others."""
    if (
        machine.is_gpu
        or operation.combiner != NamedCombiner("softmax_sum")
        or len(operation.reduce_axes) != 1
        or any(isinstance(body, Masked) for body in operation.bodies)
    ):
        return ()
    score, value = (body.free_symbols for body in operation.bodies)
    common = [axis for axis in operation.axes if axis.name in score & value]
    rows = [axis for axis in operation.axes if axis.name in score - value]
    blocks = estimate(points(common), graph.symbols) * -(-estimate(points(rows), graph.symbols) // BLOCK)
    keys = estimate(points(operation.reduce_axes), graph.symbols)
    width = sum(value.type.dtype.itemsize for value in operation.results)
    loaded = load_count(*operation.bodies) * width
    work = ReductionWork(blocks, keys, loaded, max(loaded, body_cost(*operation.bodies) // 4, 1), False)
    threads = machine.model.threads
    parts = threads // math.gcd(blocks, threads)  # equally many for each thread
    limit = min(costs.splits(work, machine), parts, keys // MIN_SCORED_SPLIT)
    if limit < 2:
        return ()
    division = (
        _divide(operation.reduce_axes, limit) if isinstance(operation.reduce_axes[0].size, int) else None
    )
    if division is None or division.splits < limit:
        division = _divide_flattened(operation.reduce_axes, limit, BLOCK)
    return in_two_steps(operation, division, True)


def _masked(in_range: Expr, bodies: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return bodies that give the identity of the combiner where ``in_range`` does not hold.

    They are the score and value of a softmax-weighted sum, or the one body of a sum: a multiplication.
    """
    if len(bodies) == 2:
        score, value = bodies
        return masked(in_range, score, const(-math.inf, score.dtype)), masked(
            in_range, value, const(0.0, value.dtype)
        )
    (body,) = bodies
    assert isinstance(body, Op)
    return (op(body.name, *(masked(in_range, each, const(0.0, each.dtype)) for each in body.args)),)


def _size(axis: Axis) -> int:
    assert isinstance(axis.size, int)
    return axis.size


def in_two_steps(operation: Reduction, division: Division, along_outer: bool) -> tuple[Reduction, Reduction]:
    """Return the reduction of each split and the reduction of the partial results.

    The partial results are numbered by their last axes, or by their first where loads are contiguous along the outer
    axes (``along_outer``).
    """
    axes = (*division.split_axes, *operation.axes) if along_outer else (*operation.axes, *division.split_axes)
    split_sizes = tuple(axis.size for axis in division.split_axes)
    partial: list[Value] = []
    for value in operation.results:
        shape = (*split_sizes, *value.type.shape) if along_outer else (*value.type.shape, *split_sizes)
        partial.append(
            Value(f"{value.name}.partial", replace(value.type, shape=shape, layout=contiguous(shape)))
        )
    bodies = tuple(substitute_expr(body, division.mapping) for body in operation.bodies)
    if division.in_range is not None:
        bodies = _masked(division.in_range, bodies)
    first = replace(
        operation, results=tuple(partial), axes=axes, reduce_axes=division.inner_axes, bodies=bodies
    )
    point = tuple(symbol(axis.name) for axis in axes)
    loaded = tuple(Load(value.name, element_of(value, point), value.type.dtype) for value in partial)
    second = replace(operation, reduce_axes=division.split_axes, bodies=loaded)
    assert isinstance(operation.combiner, NamedCombiner)
    dtypes = tuple(body.dtype for body in bodies)
    return first, replace(second, combiner=partial_results_combiner(operation.combiner, dtypes))
