"""Gradients of the tensors that a score function looks into: sums over the queries and keys that looked there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from litz_ir.dtypes import f32
from litz_ir.loops import Axis, LoopGraph, TensorType
from litz_ir.scalar import Expr, FullRange, QueryKeyPoint, SummedPosition, build, map_indirects
from litz_ir.symbols import Simplifier, Size, add, free_symbols, minimum
from litz_lowering.context import Axes, LoweringContext, Tensor
from litz_lowering.rules.flex_attention.blocks import ListedBlocks, keys_of, queries_of
from litz_lowering.rules.flex_attention.functions import CAPTURED_READS, CapturedRead, element_of
from litz_lowering.rules.flex_attention.scores import FlexScores
from litz_lowering.rules.scatter import combine_dtype, zeros
from litz_lowering.values import axes_of, terms_of

FIRST = 3
"""The result that is the gradient of what is captured first."""

QUERY, KEY = 2, 3
"""Where the dimensions of scores have these: batch, head, query, key."""

NOTHING = -0.0
"""What changes no number that it is added to, zeros of either sign among them."""

JointResults = Callable[[QueryKeyPoint, Sequence[Axis]], Sequence[Expr]]
"""What a joint graph gives at a point of a loop over axes."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a gradient: the result of the joint graph that is added, those that say where, and its name."""

    value: int
    indices: slice
    name: str


@dataclass(frozen=True, slots=True)
class CapturedGradients:
    """Makes the gradients of what a score function looks into; ``joint`` gives what ``made`` gives at a point.

    Where the key does not say where the function looks, the rows of scores are summed first; where the query does not,
    their columns. Else every point adds to the element that it looked at.
    """

    ctx: LoweringContext
    scores: FlexScores
    joint: LoopGraph
    made: JointResults
    block_mask: Sequence[Any]

    def gradients(self, count: int) -> tuple[Tensor | None, ...]:
        """Those of ``count`` tensors; None where nobody reads one."""
        look_ups: Sequence[CapturedRead] = self.ctx.node.meta.get(CAPTURED_READS) or ()
        parts: dict[int, list[_Part]] = {}
        value = 1
        for number, each in enumerate(look_ups):
            indices = slice(value + 1, value + 1 + each.indices)
            parts.setdefault(each.captured, []).append(_Part(value, indices, f"captured_{number}"))
            value = indices.stop
        return tuple(self._gradient(k, parts[k]) if k in parts else None for k in range(count))

    def _gradient(self, number: int, parts: Sequence[_Part]) -> Tensor:
        """The gradient of one tensor, which is rounded when all of it is there."""
        kind = self.ctx.outputs[FIRST + number]
        assert kind is not None, "a gradient that is read is a tensor"
        wide = self.ctx.temporary(combine_dtype(kind.dtype, "add"), kind.shape)
        total = zeros(self.ctx, wide)
        for part in parts:
            total = self._with(total, part, kind if part is parts[-1] else wide)
        return total

    def _with(self, total: Tensor, part: _Part, kind: TensorType) -> Tensor:
        """A gradient with a part added, rounded to what ``kind`` has."""
        axes = axes_of(self._sizes)
        terms = self._places(part, self._point(*terms_of(axes)), axes, kind)
        used = frozenset().union(*map(free_symbols, terms))
        for dimension in (KEY, QUERY):
            if axes[dimension].name not in used:
                kept = tuple(k for k, axis in enumerate(axes) if axis.name in used)
                return self._of_sums(total, part, kind, dimension, kept)
        own = [axis for axis in axes if axis.size != 1]
        if _are_apart(terms, own) and isinstance(self._along(KEY), FullRange):
            return self._of_elements(total, part, kind, terms, own)
        return self._of_points(total, part, kind)

    # --- what is added, and where ---

    def _point(self, batch: Size, head: Size, query: Size, key: Size) -> QueryKeyPoint:
        _, shared = replace(self.scores.heads, split=False).at((head,))
        return QueryKeyPoint(batch, head, shared, query, key)

    def _value(self, part: _Part, point: QueryKeyPoint, axes: Sequence[Axis], nothing: float) -> Expr:
        """What a point adds; ``nothing`` where the mask hides the key."""
        value = build.cast(self.made(point, axes)[part.value], f32)
        return build.where(self.scores.visible(point, axes), value, build.const(nothing, f32))

    def _places(
        self, part: _Part, point: QueryKeyPoint, axes: Sequence[Axis], kind: TensorType
    ) -> tuple[Size, ...]:
        """The element that a point adds to."""
        zero = (build.const(0.0, f32),)
        indices = self.scores.results(self.joint, point, axes, zero, zero)[part.indices]
        simplifier = Simplifier(self.scores.ranges(axes))
        return tuple(element_of(*each, simplifier) for each in zip(indices, kind.shape, strict=True))

    def _name(self, part: _Part, kind: TensorType) -> str:
        """What a gradient with a part added is called: the last one is the node's result."""
        own = next((k for k, each in enumerate(self.ctx.outputs) if each is kind), None)
        return part.name if own is None else str(own)

    @property
    def _sizes(self) -> tuple[Size, ...]:
        """How many there are of the batch, heads, queries and keys."""
        return (*self.scores.query.shape[:KEY], self.scores.key.shape[QUERY])

    def _along(self, dimension: int) -> FullRange | ListedBlocks:
        """What loops over the keys of a query, or over the queries of a key, run over."""
        return (keys_of if dimension == KEY else queries_of)(self.block_mask, *self._sizes[QUERY:])

    # --- every point on its own ---

    def _of_elements(
        self, total: Tensor, part: _Part, kind: TensorType, terms: Sequence[Size], axes: Sequence[Axis]
    ) -> Tensor:
        """Every element is that of one point."""
        elements = axes_of(kind.shape)

        def found(at: Mapping[str, Size]) -> Expr:
            point = self._point(*(at.get(f"i{k}", 0) for k in range(4)))
            return self._value(part, point, elements, NOTHING)

        return self.ctx.pointwise(_beside(total, found, terms, axes, kind), kind, self._name(part, kind))

    def _of_points(self, total: Tensor, part: _Part, kind: TensorType) -> Tensor:
        """Every point adds to the element that it looked at."""
        keys = self._along(KEY)
        over = (*self._sizes[:KEY], *keys.sizes)
        axes = axes_of(over)

        def at(terms: Axes) -> tuple[SummedPosition, QueryKeyPoint]:
            b, h, m, *inner = terms
            place = keys.at(b, h, m, inner)
            return place, self._point(b, h, m, place.position)

        def index(terms: Axes) -> Sequence[Size]:
            place, point = at(terms)
            return [_inside(place, term) for term in self._places(part, point, axes, kind)]

        def body(terms: Axes) -> Expr:
            place, point = at(terms)
            return place.or_else(self._value(part, point, axes, NOTHING), build.const(NOTHING, f32))

        return self._scattered(total, part, kind, over, index, body)

    def _scattered(
        self, total: Tensor, part: _Part, kind: TensorType, over: Sequence[Size],
        index: Callable[[Axes], Sequence[Size]], body: Callable[[Axes], Expr],
    ) -> Tensor:  # fmt: skip
        """A gradient with what is added in no order, rounded when all of it is there."""
        name = self._name(part, kind)
        if total.dtype == kind.dtype:
            return self.ctx.scatter(total, over, index, body, mode="add", type=kind, name=name)
        wide = self.ctx.scatter(total, over, index, body, mode="add", type=total.type, name=part.name)
        return self.ctx.pointwise(wide.load, kind, name)

    # --- rows or columns summed first ---

    def _of_sums(
        self, total: Tensor, part: _Part, kind: TensorType, dimension: int, kept: Sequence[int]
    ) -> Tensor:
        """What is added depends on those dimensions of scores that are ``kept``, ``dimension`` not among them."""
        sums, sizes = self._sums(part, dimension), self._sizes
        axes = axes_of([sizes[k] for k in kept])
        others = [k for k in range(4) if k not in kept and k != dimension]

        def summed(outer: Axes, inner: Axes) -> Expr:
            at = dict(zip((*kept, *others), (*outer, *inner), strict=True))
            return sums(*(at[k] for k in sorted(at)))

        held = self.ctx.temporary(f32, [axis.size for axis in axes])
        over = [sizes[k] for k in others]
        (whole,) = self.ctx.reduction("sum", summed, over, (held,), (f"{part.name}_sum",))
        own = dict(zip(kept, terms_of(axes)))
        terms = self._places(part, self._point(*(own.get(k, 0) for k in range(4))), axes, kind)
        if not _are_apart(terms, axes):
            return self._scattered(total, part, kind, held.shape, lambda _: terms, whole.load)
        added = _beside(total, lambda at: whole.load(tuple(at.values())), terms, axes, kind)
        return self.ctx.pointwise(added, kind, self._name(part, kind))

    def _sums(self, part: _Part, dimension: int) -> Callable[..., Expr]:
        """What is added in all along a dimension, the keys or the queries, read by the batch's member, the head and the
        place in the other one."""
        along, sizes = self._along(dimension), self._sizes
        heads = replace(self.scores.heads, split=not along.heads)
        held = self.ctx.temporary(f32, (sizes[0], *heads.sizes, sizes[QUERY + KEY - dimension]))
        axes = (*axes_of(held.shape), *axes_of(along.sizes, "r"))

        def body(outer: Axes, inner: Axes) -> Expr:
            b, *indices, row = outer
            head, shared = heads.at(indices)
            place = along.at(b, head, row, inner)
            ends = (row, place.position) if dimension == KEY else (place.position, row)
            value = self._value(part, QueryKeyPoint(b, head, shared, *ends), axes, 0.0)
            return place.or_else(value, build.const(0.0, f32))

        (total,) = self.ctx.reduction("sum", body, along.sizes, (held,), (f"{part.name}_rows",))
        return lambda b, h, row: total.load((b, *heads.divided(h), row))


def _are_apart(terms: Sequence[Size], axes: Sequence[Axis]) -> bool:
    """True where an index tells the point of axes that it is of: it is made of all of them, each once, and numbers."""
    return sorted(axis.name for axis in axes) == sorted(
        str(each) for each in terms if not isinstance(each, int)
    )


def _beside(
    total: Tensor, found: Callable[[Mapping[str, Size]], Expr], terms: Sequence[Size], axes: Sequence[Axis],
    kind: TensorType,
) -> Callable[[Axes], Expr]:  # fmt: skip
    """A gradient with what is ``found`` at each point of axes added to an element of its own: ``terms``, its index,
    tell the points apart."""
    sizes = {axis.name: axis.size for axis in axes}

    def added(element: Axes) -> Expr:
        at = dict.fromkeys(sizes, element[0])
        conditions: list[tuple[str, Size, Size]] = []
        for term, place, size in zip(terms, element, kind.shape, strict=True):
            if isinstance(term, int):
                conditions += [("eq", place, term)] if size != 1 else []
                continue
            own = sizes[str(term)]
            conditions += [("lt", place, own)] if size != own else []
            at[str(term)] = place if size == own else minimum(place, add(own, -1))
        value = found(at)
        for name, place, limit in conditions:
            here = build.op(name, build.index(place), build.index(limit))
            value = build.where(here, value, build.const(NOTHING, f32))
        return build.op("add", total.load(element), build.cast(value, total.dtype))

    return added


def _inside(place: SummedPosition, term: Size) -> Size:
    """An index that is read nowhere but where its place may be."""
    guard = place.mask
    if guard is None:
        return term
    return map_indirects(
        term, lambda atom: atom.of(build.masked(guard, atom.value, build.const(0, atom.value.dtype)))
    )
