"""Gradients of the tensors that a score function captures: sums over the queries and keys that read each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from litz_ir.dtypes import f32
from litz_ir.loops import Axis, LoopGraph, TensorType
from litz_ir.scalar import Expr, FullRange, QueryKeyPoint, SummedPosition, build, map_indirects
from litz_ir.symbols import Simplifier, Size, add, free_symbols, minimum
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.values import axes_of, terms_of
from litz_lowering.rules.flex_attention.blocks import ListedBlocks, keys_of, queries_of
from litz_lowering.rules.flex_attention.functions import CAPTURED_READS, CapturedRead, element_of
from litz_lowering.rules.flex_attention.scores import FlexScores
from litz_lowering.rules.indexing.scatter import combine_dtype, zeros

_FIRST = 3
"""Position of the first captured tensor's gradient among the results."""

QUERY, KEY = 2, 3
"""Positions of query and key among the dimensions of scores: batch, head, query, key."""

NOTHING = -0.0
"""Identity of addition that preserves the sign of zeros."""

JointResults = Callable[[QueryKeyPoint, Sequence[Axis]], Sequence[Expr]]
"""Results of a joint graph at a point of a loop over axes."""


@dataclass(frozen=True, slots=True)
class _Summand:
    """One summand of a gradient."""

    value: int
    """Position of the summand among the joint graph's results."""
    indices: slice
    """Positions of the element's indices among these results."""
    name: str
    """Name of intermediates."""


@dataclass(frozen=True, slots=True)
class CapturedGradients:
    """Constructor of the gradients of captured tensors.

    Where an index does not depend on the key, rows of scores are summed first; where it does not depend on the query,
    columns are. Otherwise every point adds to the element that it read.
    """

    ctx: LoweringContext
    scores: FlexScores
    joint: LoopGraph
    """Loop graph of the joint function."""
    made: JointResults
    """Results of the joint function at a point."""
    block_mask: Sequence[Any]

    def gradients(self, count: int) -> tuple[Tensor | None, ...]:
        """Gradients of ``count`` tensors; None where one is not read."""
        reads: Sequence[CapturedRead] = self.ctx.node.meta.get(CAPTURED_READS) or ()
        parts: dict[int, list[_Summand]] = {}
        value = 1
        for number, each in enumerate(reads):
            indices = slice(value + 1, value + 1 + each.indices)
            parts.setdefault(each.captured, []).append(_Summand(value, indices, f"captured_{number}"))
            value = indices.stop
        return tuple(self._gradient(k, parts[k]) if k in parts else None for k in range(count))

    def _gradient(self, number: int, parts: Sequence[_Summand]) -> Tensor:
        """Gradient of one tensor, rounded once after the last summand."""
        kind = self.ctx.outputs[_FIRST + number]
        assert kind is not None, "a gradient that is read is a tensor"
        wide = self.ctx.temporary(combine_dtype(kind.dtype, "add"), kind.shape)
        total = zeros(self.ctx, wide)
        for part in parts:
            total = self._with(total, part, kind if part is parts[-1] else wide)
        return total

    def _with(self, total: Tensor, part: _Summand, kind: TensorType) -> Tensor:
        """Add a summand to a gradient, with the dtype of ``kind``."""
        axes = axes_of(self._sizes)
        terms = self._element_index(part, self._point(*terms_of(axes)), axes, kind)
        used = frozenset().union(*map(free_symbols, terms))
        for dimension in (KEY, QUERY):
            if axes[dimension].name not in used:
                dims = tuple(k for k, axis in enumerate(axes) if axis.name in used)
                return self._of_sums(total, part, kind, dimension, dims)
        own = [axis for axis in axes if axis.size != 1]
        if _is_injective(terms, own) and isinstance(self._along(KEY), FullRange):
            return self._of_elements(total, part, kind, terms, own)
        return self._of_points(total, part, kind)

    # --- summands and their elements ---

    def _point(self, batch: Size, head: Size, query: Size, key: Size) -> QueryKeyPoint:
        _, kv_head = replace(self.scores.heads, split=False).at((head,))
        return QueryKeyPoint(batch, head, kv_head, query, key)

    def _value(self, part: _Summand, point: QueryKeyPoint, axes: Sequence[Axis], nothing: float) -> Expr:
        """Summand of a point; ``nothing`` where the mask hides the key."""
        value = build.cast(self.made(point, axes)[part.value], f32)
        return build.where(self.scores.visible(point, axes), value, build.const(nothing, f32))

    def _element_index(
        self, part: _Summand, point: QueryKeyPoint, axes: Sequence[Axis], kind: TensorType
    ) -> tuple[Size, ...]:
        """Index of the element that a point adds to."""
        zero = (build.const(0.0, f32),)
        indices = self.scores.results(self.joint, point, axes, zero, zero)[part.indices]
        simplifier = Simplifier(self.scores.ranges(axes))
        return tuple(element_of(*each, simplifier) for each in zip(indices, kind.shape, strict=True))

    def _name(self, part: _Summand, kind: TensorType) -> str:
        """Name of a gradient after a summand; the last one is the node's result."""
        own = next((k for k, each in enumerate(self.ctx.outputs) if each is kind), None)
        return part.name if own is None else str(own)

    @property
    def _sizes(self) -> tuple[Size, ...]:
        """Numbers of batch members, heads, queries and keys."""
        return (*self.scores.query.shape[:KEY], self.scores.key.shape[QUERY])

    def _along(self, dimension: int) -> FullRange | ListedBlocks:
        """Range of a sum over the keys of a query, or over the queries of a key."""
        return (keys_of if dimension == KEY else queries_of)(self.block_mask, *self._sizes[QUERY:])

    # --- summands per point ---

    def _of_elements(
        self, total: Tensor, part: _Summand, kind: TensorType, terms: Sequence[Size], axes: Sequence[Axis]
    ) -> Tensor:
        """Add one summand to each element, where every element belongs to one point."""
        elements = axes_of(kind.shape)

        def value(at: Mapping[str, Size]) -> Expr:
            point = self._point(*(at.get(f"i{k}", 0) for k in range(4)))
            return self._value(part, point, elements, NOTHING)

        return self.ctx.pointwise(
            _added_at_elements(total, value, terms, axes, kind), kind, self._name(part, kind)
        )

    def _of_points(self, total: Tensor, part: _Summand, kind: TensorType) -> Tensor:
        """Add every point's summand to the element that it read, by a scatter."""
        keys = self._along(KEY)
        over = (*self._sizes[:KEY], *keys.sizes)
        axes = axes_of(over)

        def at(terms: Axes) -> tuple[SummedPosition, QueryKeyPoint]:
            b, h, m, *inner = terms
            summed = keys.at(b, h, m, inner)
            return summed, self._point(b, h, m, summed.position)

        def index(terms: Axes) -> Sequence[Size]:
            summed, point = at(terms)
            return [_masked_index(summed, term) for term in self._element_index(part, point, axes, kind)]

        def body(terms: Axes) -> Expr:
            summed, point = at(terms)
            return summed.or_else(self._value(part, point, axes, NOTHING), build.const(NOTHING, f32))

        return self._scattered(total, part, kind, over, index, body)

    def _scattered(
        self, total: Tensor, part: _Summand, kind: TensorType, over: Sequence[Size],
        index: Callable[[Axes], Sequence[Size]], body: Callable[[Axes], Expr],
    ) -> Tensor:  # fmt: skip
        """Scatter summands into a gradient, rounded once at the end."""
        name = self._name(part, kind)
        if total.dtype == kind.dtype:
            return self.ctx.scatter(total, over, index, body, mode="add", type=kind, name=name)
        scattered = self.ctx.scatter(total, over, index, body, mode="add", type=total.type, name=part.name)
        return self.ctx.pointwise(scattered.load, kind, name)

    # --- sums of rows or columns ---

    def _of_sums(
        self, total: Tensor, part: _Summand, kind: TensorType, dimension: int, dims: Sequence[int]
    ) -> Tensor:
        """Add sums over ``dimension`` of the scores to elements that depend on the dimensions ``dims`` only."""
        sums, sizes = self._sums(part, dimension), self._sizes
        axes = axes_of([sizes[k] for k in dims])
        others = [k for k in range(4) if k not in dims and k != dimension]

        def summed(outer: Axes, inner: Axes) -> Expr:
            at = dict(zip((*dims, *others), (*outer, *inner), strict=True))
            return sums(*(at[k] for k in sorted(at)))

        kind_of_sums = self.ctx.temporary(f32, [axis.size for axis in axes])
        over = [sizes[k] for k in others]
        (sum_,) = self.ctx.reduction("sum", summed, over, (kind_of_sums,), (f"{part.name}_sum",))
        own = dict(zip(dims, terms_of(axes)))
        terms = self._element_index(part, self._point(*(own.get(k, 0) for k in range(4))), axes, kind)
        if not _is_injective(terms, axes):
            return self._scattered(total, part, kind, kind_of_sums.shape, lambda _: terms, sum_.load)
        added = _added_at_elements(total, lambda at: sum_.load(tuple(at.values())), terms, axes, kind)
        return self.ctx.pointwise(added, kind, self._name(part, kind))

    def _sums(self, part: _Summand, dimension: int) -> Callable[..., Expr]:
        """Sums of summands over the keys or the queries, as a function of batch member, head and the other
        position."""
        along, sizes = self._along(dimension), self._sizes
        heads = replace(self.scores.heads, split=not along.heads)
        kind = self.ctx.temporary(f32, (sizes[0], *heads.sizes, sizes[QUERY + KEY - dimension]))
        axes = (*axes_of(kind.shape), *axes_of(along.sizes, "r"))

        def body(outer: Axes, inner: Axes) -> Expr:
            b, *indices, row = outer
            head, kv_head = heads.at(indices)
            summed = along.at(b, head, row, inner)
            ends = (row, summed.position) if dimension == KEY else (summed.position, row)
            value = self._value(part, QueryKeyPoint(b, head, kv_head, *ends), axes, 0.0)
            return summed.or_else(value, build.const(0.0, f32))

        (total,) = self.ctx.reduction("sum", body, along.sizes, (kind,), (f"{part.name}_rows",))
        return lambda b, h, row: total.load((b, *heads.divided(h), row))


def _is_injective(terms: Sequence[Size], axes: Sequence[Axis]) -> bool:
    """True where distinct points have distinct indices: the index consists of all axes, each once, and constants."""
    return sorted(axis.name for axis in axes) == sorted(
        str(each) for each in terms if not isinstance(each, int)
    )


def _added_at_elements(
    total: Tensor, value_at: Callable[[Mapping[str, Size]], Expr], terms: Sequence[Size], axes: Sequence[Axis],
    kind: TensorType,
) -> Callable[[Axes], Expr]:  # fmt: skip
    """Body of a gradient with ``value`` of each point of ``axes`` added to the element with index ``terms``."""
    sizes = {axis.name: axis.size for axis in axes}

    def added(element: Axes) -> Expr:
        at = dict.fromkeys(sizes, element[0])
        conditions: list[tuple[str, Size, Size]] = []
        for term, position, size in zip(terms, element, kind.shape, strict=True):
            if isinstance(term, int):
                conditions += [("eq", position, term)] if size != 1 else []
                continue
            own = sizes[str(term)]
            conditions += [("lt", position, own)] if size != own else []
            at[str(term)] = position if size == own else minimum(position, add(own, -1))
        value = value_at(at)
        for name, position, limit in conditions:
            here = build.op(name, build.index(position), build.index(limit))
            value = build.where(here, value, build.const(NOTHING, f32))
        return build.op("add", total.load(element), build.cast(value, total.dtype))

    return added


def _masked_index(summed: SummedPosition, term: Size) -> Size:
    """Index whose loads are masked where the summed position is masked."""
    mask = summed.mask
    if mask is None:
        return term
    return map_indirects(
        term, lambda atom: atom.of(build.masked(mask, atom.value, build.const(0, atom.value.dtype)))
    )
