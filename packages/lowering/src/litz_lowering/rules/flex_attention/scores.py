"""Scores of attention at one query and key, over the axes of any loop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from litz_ir.dtypes import f32
from litz_ir.loops import Axis, LoopGraph
from litz_ir.scalar import Expr, Heads, NestedReduction, QueryKeyPoint, build, substitute_expr
from litz_ir.symbols import Range, Size, extent, floordiv, symbol
from litz_lowering.contexts.context import LoweringContext
from litz_lowering.contexts.subgraphs import SubgraphRequirements
from litz_lowering.contexts.values import Lowered, Subgraph, Tensor
from litz_lowering.rules.flex_attention.functions import compose_function

LN2 = math.log(2)
"""Natural logarithm of 2. Logarithms are passed in base 2."""


class FlexScores:
    """Scores before and after the score function and the mask, and the arguments of these functions."""

    def __init__(
        self, ctx: LoweringContext, operands: tuple[Tensor, Tensor, Tensor], scale: Expr | float,
        mask: Subgraph, others: tuple[Sequence[Lowered], Sequence[Lowered]],
    ) -> None:  # fmt: skip
        self.query, self.key, self.value = operands
        self.scale = ctx.number(scale, f32)
        self._ctx = ctx
        self._mask = self.function(mask)
        self._others = others
        heads, shared = self.query.shape[1], self.key.shape[1]
        self.heads = Heads(shared, 1 if heads == shared else floordiv(heads, shared))

    def function(self, subgraph: Subgraph) -> LoopGraph:
        """Loop graph of a scalar function."""
        return self._ctx.subgraphs.lower(subgraph, SubgraphRequirements())

    def raw(self, point: QueryKeyPoint) -> Expr:
        """Scaled dot product of a query and a key."""
        return build.op("mul", self.dot(self.query, self.key, point, "e0"), self.scale)

    def dot(self, rows: Tensor, columns: Tensor, point: QueryKeyPoint, along: str) -> Expr:
        """Dot product, in f32, of a row of a query tensor and a row of a key tensor."""
        element, size = symbol(along), rows.shape[-1]
        operands = (self.of_query(rows, point, element), self.of_key(columns, point, element))
        body = build.op("mul", *(build.cast(each, f32) for each in operands))
        return NestedReduction(((along, size),), body) if size != 1 else substitute_expr(body, {along: 0})

    def of_key(self, x: Tensor, point: QueryKeyPoint, element: Size) -> Expr:
        """Element of a key tensor, whose batch dimension may be 1."""
        return x.load((0 if x.shape[0] == 1 else point.batch, point.kv_head, point.key, element))

    def of_query(self, x: Tensor, point: QueryKeyPoint, *element: Size) -> Expr:
        """Element of a query tensor."""
        return x.load((point.batch, point.head, point.query, *element))

    def results(
        self, function: LoopGraph, point: QueryKeyPoint, axes: Sequence[Axis],
        before: Sequence[Expr] = (), after: Sequence[Expr] = (), others: Sequence[Lowered] | None = None,
    ) -> tuple[Expr, ...]:  # fmt: skip
        """Results of a function of (``before``, batch, head, query, key, ``after``, captured tensors)."""
        at = (point.batch, point.head, point.query, point.key)
        given = (*before, *map(build.index, at), *after, *(self._others[0] if others is None else others))
        return compose_function(function, given, self.ranges(axes))

    def ranges(self, axes: Sequence[Axis]) -> Mapping[str, Range]:
        """Ranges of the symbols in a loop over axes."""
        own: dict[str, Range] = {axis.name: extent(axis.size) for axis in axes}
        return {**self._ctx.builder.symbols.ranges(), **own}

    def call(
        self, function: LoopGraph, point: QueryKeyPoint, axes: Sequence[Axis],
        before: Sequence[Expr] = (), after: Sequence[Expr] = (), others: Sequence[Lowered] | None = None,
    ) -> Expr:  # fmt: skip
        """First result of a function; see :meth:`results`."""
        return self.results(function, point, axes, before, after, others)[0]

    def visible(self, point: QueryKeyPoint, axes: Sequence[Axis]) -> Expr:
        """Condition that the mask lets a query attend to a key, or that a block mask has promised it."""
        shown = self.call(self._mask, point, axes, others=self._others[1])
        return shown if point.promised is None else build.op("bit_or", point.promised, shown)

    def final(self, function: LoopGraph, point: QueryKeyPoint, axes: Sequence[Axis]) -> Expr:
        """Score before the softmax; minus infinity where the mask hides the key."""
        modified = self.call(function, point, axes, (self.raw(point),))
        return build.where(self.visible(point, axes), build.cast(modified, f32), build.const(-math.inf, f32))
