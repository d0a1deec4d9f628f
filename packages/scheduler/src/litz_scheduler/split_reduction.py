"""Reductions to few points in two steps, so that every thread, or every processor of a GPU, has a part."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from litz_ir.contraction import MatmulNest
from litz_ir.dtypes import DType
from litz_ir.fused import Decision
from litz_ir.loops import (
    Axis,
    LoopGraph,
    NamedCombiner,
    Operation,
    Reduction,
    UserCombiner,
    Value,
    contiguous,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import (
    Expr,
    Load,
    Masked,
    Op,
    Param,
    cast,
    const,
    index,
    loads,
    masked,
    op,
    substitute_expr,
    where,
)
from litz_ir.symbols import Size, add, coefficient, floordiv, mod, mul, product, symbol
from litz_ir.target import Capabilities
from litz_scheduler.cluster_size import CTAS_PER_SM, MIN_COLUMN_TILE, max_cluster_size
from litz_scheduler.cost import body_cost, estimate, load_count, points
from litz_scheduler.graph_facts import element_of
from litz_scheduler.legality.matmul import gpu_kinds, matmul_of
from litz_scheduler.options import SchedulerOptions

SPLIT = (
    "sum", "prod", "min", "max", "any", "all", "xor", "argmin", "argmax", "welford", "online_softmax",
    "softmax_sum",
)  # fmt: skip
"""What can be combined of parts; all but the last three as elements are."""

SPLITS_PER_THREAD = 16
"""The parts wanted for each thread: enough to even out threads of unequal speed."""

SLAB, TALL_COLUMN, TALL_RATIO = 256 << 10, 512, 4
"""What a part of the columns of a CPU reads, so that a cache holds it, and which columns are read in parts: those of so
many elements, and of so many times the elements of a row."""

MIN_MATMUL_TILE, MIN_SPLIT, MIN_SCORED_SPLIT = 64, 1024, 256
"""The side of the least tile of a product of matrices that multiplies well, the least that one part of it sums, and the
least where every summed point is a product itself."""

SPLIT_K_RATIO = 4
"""A product is divided where it sums this many times what its longer side has: else its parts cost more than they
give."""


@dataclass(frozen=True, slots=True)
class SplitReductions:
    """Reduce the parts of a long reduction first, one beside the other, then what they give."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "split-reductions"
    ulp: int = 64

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        operations: list[Operation] = []
        for operation in data.operations:
            parts = self._divided(operation, data, context) if isinstance(operation, Reduction) else ()
            operations += parts or (operation,)
            if parts:
                note = f"{math.prod(axis.size for axis in parts[1].reduce_axes)} parts"
                context.decide(Decision("split", operation.name, "split", "split.threads", note=note))
        return data.with_operations(tuple(operations))

    def _divided(self, operation: Reduction, graph: LoopGraph, context: PassContext) -> tuple[Reduction, ...]:
        """The two steps of a reduction; none where it stays whole."""
        machine = context.machine(operation.results[0].type.device)
        if (
            machine is None
            or not isinstance(operation.combiner, NamedCombiner)
            or operation.combiner.name not in SPLIT
        ):
            return ()
        matmul = matmul_of(operation, gpu_kinds(context))
        if matmul is not None and matmul.nested:
            most = _split_k(matmul, graph, machine)
            return _weighed_in_parts(operation, most) if most > 1 else ()
        if not isinstance(points(operation.reduce_axes), int):
            return ()
        if matmul is not None:
            columns, most = True, _split_k(matmul, graph, machine)
        else:
            columns = (machine.sm_count > 0 or _is_tall(operation)) and reads_columns(operation, graph)
            most = (self._programs if machine.sm_count else self._threads)(operation, graph, machine, columns)
        if most < 2:
            return ()
        division = _divided(operation.reduce_axes, most)
        if matmul is not None and _few(division, most):
            division = _divided_anyhow(operation.reduce_axes, most, MIN_MATMUL_TILE)
        return _in_two_steps(operation, division, columns) if division.parts > 1 else ()

    def _threads(self, operation: Reduction, graph: LoopGraph, machine: Capabilities, columns: bool) -> int:
        """The most parts that pay on the threads of a CPU."""
        outer, inner = estimate(points(operation.axes), graph.symbols), _inner(operation)
        if columns:
            nbytes = inner * outer * load_count(*operation.bodies) * operation.results[0].type.dtype.itemsize
            return nbytes // SLAB
        if machine.threads < 2 or outer >= 2 * machine.threads or outer == machine.threads:
            return 0
        worthwhile = min(inner // 2, inner * _effort(operation) // self.options.cpu_split_bytes)
        return min(SPLITS_PER_THREAD * machine.threads // max(outer, 1), worthwhile)

    def _programs(self, operation: Reduction, graph: LoopGraph, machine: Capabilities, columns: bool) -> int:
        """The most parts that pay on the processors of a GPU."""
        together = MIN_COLUMN_TILE if columns else 1
        programs = -(-estimate(points(operation.axes), graph.symbols) // together)
        inner, most = _inner(operation), max_cluster_size(machine, self.options)
        if programs >= 2 * machine.sm_count:
            return 0
        if not columns and 1 < most and inner <= most * self.options.long_row:
            return 0  # programs share a row, each a part that it keeps
        # Of equal reads, whatever is made of them: what shares a read should share a kernel.
        nbytes = inner * together * load_count(*operation.bodies) * operation.results[0].type.dtype.itemsize
        worthwhile = min(inner // 2, nbytes // self.options.gpu_split_bytes)
        parts = min(CTAS_PER_SM * machine.sm_count // max(programs, 1), worthwhile)
        return 0 if parts <= most else parts


def _split_k(matmul: MatmulNest, graph: LoopGraph, machine: Capabilities) -> int:
    """The most parts of K that pay for a matmul whose tiles leave processors without one."""
    batch, m, n, k = (
        estimate(points(axes), graph.symbols) for axes in (matmul.batch, matmul.m, matmul.n, matmul.k)
    )
    tiles = batch * -(-m // MIN_MATMUL_TILE)
    tiles *= 1 if matmul.nested else -(-n // MIN_MATMUL_TILE)
    if 2 * tiles > machine.sm_count or k < SPLIT_K_RATIO * max(m, n):
        return 0
    return min(machine.sm_count // max(tiles, 1), k // (MIN_SCORED_SPLIT if matmul.nested else MIN_SPLIT))


def _inner(operation: Reduction) -> int:
    """The elements that are combined to one; their number is known."""
    inner = points(operation.reduce_axes)
    assert isinstance(inner, int)
    return inner


def _is_tall(operation: Reduction) -> bool:
    """True where columns have far more elements than rows."""
    outer = points(operation.axes)
    return isinstance(outer, int) and _inner(operation) >= max(TALL_COLUMN, TALL_RATIO * outer)


def _effort(operation: Reduction) -> int:
    """What an element takes, in bytes that are read in the same time."""
    width = sum(value.type.dtype.itemsize for value in operation.results)
    return max(load_count(*operation.bodies) * width, body_cost(*operation.bodies) // 4, 1)


def reads_columns(operation: Reduction, graph: LoopGraph) -> bool:
    """True where neighbours in memory are neighbours among the results, more often than among what is reduced."""
    types = {name: value.type for name, value in graph.values().items()}
    votes = 0
    for load in loads(*operation.bodies):
        offset = types[load.buffer].layout.element(load.index)
        votes += any(coefficient(offset, axis.name) == 1 for axis in operation.axes)
        votes -= any(coefficient(offset, axis.name) == 1 for axis in operation.reduce_axes)
    return votes > 0


@dataclass(frozen=True, slots=True)
class _Division:
    """Axes as those that tell parts from one another and those inside a part; ``place`` is where a point of them is on
    the axes as they were, ``inside`` whether it is a point of theirs at all: the last part may be shorter."""

    between: tuple[Axis, ...]
    within: tuple[Axis, ...]
    place: dict[str, Size]
    inside: Expr | None = None

    @property
    def parts(self) -> int:
        return math.prod(map(_size, self.between))


def _divided(axes: tuple[Axis, ...], most: int, free: int | None = None) -> _Division:
    """The leading axes divided into up to ``most`` equal parts: several as they are, at most ``free`` of them, and a
    divisor of the next one."""
    count, whole, last = 1, 0, len(axes) if free is None else free
    while whole < last and count * _size(axes[whole]) <= most:
        count *= _size(axes[whole])
        whole += 1
    between, rest = axes[:whole], axes[whole:]
    step = next((n for n in range(most // count, 1, -1) if rest and _size(rest[0]) % n == 0), 1)
    if step == 1:
        return _Division(between, rest, {})
    part, inner = Axis(f"{rest[0].name}_part", step), Axis(rest[0].name, _size(rest[0]) // step)
    place: dict[str, Size] = {inner.name: add(mul(symbol(part.name), inner.size), symbol(inner.name))}
    return _Division((*between, part), (inner, *rest[1:]), place)


def _few(division: _Division, most: int) -> bool:
    """True for a division that leaves a quarter of the processors idle that ``most`` parts keep busy."""
    return 4 * division.parts < 3 * most


def _divided_anyhow(axes: tuple[Axis, ...], most: int, step: int = 1) -> _Division:
    """Axes, as one, divided into ``most`` parts, whatever their sizes are; where these are known, into the fewer that
    have a multiple of ``step`` points."""
    whole = product(axis.size for axis in axes)
    size = floordiv(add(whole, most - 1), most)
    if isinstance(whole, int) and isinstance(size, int):
        size = -(-size // step) * step
        most = -(-whole // size)
    part, inner = Axis(f"{axes[0].name}_part", most), Axis(axes[0].name, size)
    at = add(mul(symbol(part.name), size), symbol(inner.name))
    inside = op("lt", index(at), index(whole))
    place: dict[str, Size] = {}
    for axis in axes[:0:-1]:
        place[axis.name], at = mod(at, axis.size), floordiv(at, axis.size)
    return _Division((part,), (inner,), {**place, axes[0].name: at}, inside)


def _weighed_in_parts(operation: Reduction, most: int) -> tuple[Reduction, ...]:
    """The two steps of a reduction that holds products, which are computed for tiles of one axis at a time."""
    axes = operation.reduce_axes
    # Where blocks are listed, the last axes are a list's places and a block's positions, and go together.
    listed = any(isinstance(node, Masked) for body in operation.bodies for node in (body, *body.children))
    known = all(isinstance(axis.size, int) for axis in axes)
    division = _divided(axes, most, len(axes) - 2 if listed else None) if known else None
    if (
        (division is None or _few(division, most))
        and len(axes) == 1
        and operation.combiner == NamedCombiner("softmax_sum")
    ):
        division = _divided_anyhow(axes, most)
    return _in_two_steps(operation, division, True) if division is not None and division.parts > 1 else ()


def _within(inside: Expr, bodies: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The two bodies of a softmax's sum, or the product that a sum is of, where a point is one of the axes' own; what
    changes no result elsewhere."""
    if len(bodies) == 2:
        score, value = bodies
        return masked(inside, score, const(-math.inf, score.dtype)), masked(
            inside, value, const(0.0, value.dtype)
        )
    (body,) = bodies
    assert isinstance(body, Op)
    return (op(body.name, *(masked(inside, each, const(0.0, each.dtype)) for each in body.args)),)


def _size(axis: Axis) -> int:
    assert isinstance(axis.size, int)
    return axis.size


def _in_two_steps(operation: Reduction, division: _Division, columns: bool) -> tuple[Reduction, Reduction]:
    """The reduction of each part, and that of all parts. The last axes of the parts' results tell them apart, or the
    first where results are neighbours in memory: ``columns``."""
    axes = (*division.between, *operation.axes) if columns else (*operation.axes, *division.between)
    between = tuple(axis.size for axis in division.between)
    partial: list[Value] = []
    for value in operation.results:
        shape = (*between, *value.type.shape) if columns else (*value.type.shape, *between)
        partial.append(
            Value(f"{value.name}.parts", replace(value.type, shape=shape, layout=contiguous(shape)))
        )
    bodies = tuple(substitute_expr(body, division.place) for body in operation.bodies)
    if division.inside is not None:
        bodies = _within(division.inside, bodies)
    some = replace(operation, results=tuple(partial), axes=axes, reduce_axes=division.within, bodies=bodies)
    point = tuple(symbol(axis.name) for axis in axes)
    parts = tuple(Load(value.name, element_of(value, point), value.type.dtype) for value in partial)
    whole = replace(operation, reduce_axes=division.between, bodies=parts)
    assert isinstance(operation.combiner, NamedCombiner)
    merged = _MERGED.get(operation.combiner.name)
    if merged is not None:
        whole = replace(whole, combiner=merged(tuple(value.type.dtype for value in partial)))
    return some, whole


def _merged_moments(dtypes: tuple[DType, ...]) -> UserCombiner:
    """How (mean, sum of squared differences, count) of two parts become those of both (Chan, Golub and LeVeque)."""
    parameters = [Param(k, dtype) for k, dtype in enumerate((*dtypes, *dtypes))]
    mean, squares, count, other, more, number = parameters
    zero, one = const(0, count.dtype), const(1, count.dtype)
    total = op("add", count, number)
    share = op("div", cast(number, mean.dtype), cast(where(op("eq", total, zero), one, total), mean.dtype))
    apart = op("sub", other, mean)
    between = op("mul", op("mul", apart, apart), op("mul", cast(count, mean.dtype), share))
    merged = (
        op("add", mean, op("mul", apart, share)),
        op("add", op("add", squares, more), cast(between, squares.dtype)),
        total,
    )
    return UserCombiner(merged, tuple(const(0, dtype) for dtype in dtypes), tuple(parameters[:3]))


def _merged_softmax(dtypes: tuple[DType, ...]) -> UserCombiner:
    """How (maximum, sums of exponentials relative to it) of two parts become those of both."""
    count = len(dtypes)
    parameters = [Param(k, dtype) for k, dtype in enumerate((*dtypes, *dtypes))]
    most, other = parameters[0], parameters[count]
    lowest = const(-math.inf, most.dtype)
    top = op("maximum", most, other)
    # Where both are as low as can be there is nothing to scale.
    base = where(op("eq", top, lowest), const(0.0, most.dtype), top)
    scales = [op("exp", op("sub", each, base)) for each in (most, other)]
    sums = [
        op("add", op("mul", mine, scales[0]), op("mul", theirs, scales[1]))
        for mine, theirs in zip(parameters[1:count], parameters[count + 1 :], strict=True)
    ]
    nothing = (const(0.0, dtype) for dtype in dtypes[1:])
    return UserCombiner((top, *sums), (lowest, *nothing), tuple(parameters[:count]))


_MERGED: Mapping[str, Callable[[tuple[DType, ...]], UserCombiner]] = MappingProxyType(
    {"welford": _merged_moments, "online_softmax": _merged_softmax, "softmax_sum": _merged_softmax}
)
"""How parts are combined, where that is not how elements are."""
