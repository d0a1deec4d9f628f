"""What attention computes of one query and one key, and the blocks that a causal mask leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.dtypes import f32
from litz_ir.loops import Axis, Operation, Pointwise, TensorType, Value
from litz_ir.scalar import (
    Expr,
    FullRange,
    Heads,
    Load,
    NestedReduction,
    QueryKeyPoint,
    SummedPosition,
    cast,
    const,
    index,
    op,
    where,
)
from litz_ir.symbols import Size, add, floordiv, maximum, minimum, mul, symbol
from litz_scheduler.library.attention_calls import AttentionCall

BLOCK, LEAST = 128, 64
"""The positions of a block, and the fewest that make a good tile."""


@dataclass(frozen=True, slots=True)
class BlockRange:
    """Blocks of ``block`` positions below ``length``, those that a block of ``rows`` has to do with: a query sees the
    keys up to its own position plus ``diagonal``."""

    length: Size
    block: int
    rows: int
    diagonal: Size

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The extents of the summed axes: blocks, and a block's positions."""
        return block_count(self.length, self.block), self.block


@dataclass(frozen=True, slots=True)
class CausalKeyBlocks(BlockRange):
    """Blocks of keys, as far as one of a block of queries sees one."""

    def at(self, batch: Size, head: Size, row: Size, inner: Sequence[Size]) -> SummedPosition:
        """The place at a point of the summed axes, for a query."""
        number, within = inner
        behind = add(mul(add(floordiv(row, self.rows), 1), self.rows), self.diagonal)
        guard = op("lt", index(number), index(block_count(behind, self.block)))
        return block_position(add(mul(number, self.block), within), self.length, self.block, guard)


@dataclass(frozen=True, slots=True)
class CausalQueryBlocks(BlockRange):
    """Blocks of queries, from the one on of which one sees a key of a block of keys."""

    def at(self, batch: Size, head: Size, row: Size, inner: Sequence[Size]) -> SummedPosition:
        """The place at a point of the summed axes, for a key."""
        number, within = inner
        leading = add(mul(floordiv(row, self.rows), self.rows), mul(self.diagonal, -1))
        first = maximum(0, floordiv(leading, self.block))
        left = add(block_count(self.length, self.block), mul(first, -1))
        position = add(mul(add(first, number), self.block), within)
        return block_position(position, self.length, self.block, op("lt", index(number), index(left)))


def block_count(length: Size, block: int) -> Size:
    """How many blocks have so many positions."""
    return floordiv(add(length, block - 1), block)


def block_position(position: Size, length: Size, block: int, guard: Expr) -> SummedPosition:
    """The place at a position of a block, the last of which may reach beyond ``length``."""
    if isinstance(length, int) and length % block == 0:
        return SummedPosition(position, guard)
    return SummedPosition(minimum(position, add(length, -1)), guard, op("lt", index(position), index(length)))


def block_size(length: Size) -> int:
    """How long blocks are: such that they end where ``length`` does, if they can."""
    whole = length & -length if isinstance(length, int) else 0
    return min(BLOCK, whole) if whole >= LEAST else BLOCK


def axes_of(type_: TensorType) -> tuple[Axis, ...]:
    """A loop over the elements of a value."""
    return tuple(Axis(f"i{k}", size) for k, size in enumerate(type_.shape))


def loop(call: Operation, result: Value, body: Expr) -> Pointwise:
    """A result of a call, from its elements."""
    return Pointwise(results=(result,), axes=axes_of(result.type), bodies=(body,), origin=call.origin)


@dataclass(frozen=True, slots=True)
class AttentionScores:
    """The scores of a call, at points of whatever loop wants them."""

    call: AttentionCall

    def heads(self) -> Heads:
        """How loops run over heads: those that share keys are rows of one tile, unless a mask goes by rows."""
        shared = self.call.key.type.shape[1]
        return Heads(shared, self.call.group, split=self.call.diagonal is None)

    def keys(self) -> FullRange | CausalKeyBlocks:
        """What a query's loop runs over."""
        length, diagonal = self.call.key.type.shape[2], self.call.diagonal
        block = block_size(length)
        if diagonal is None or block_count(length, block) == 1:
            return FullRange(length)
        return CausalKeyBlocks(length, block, BLOCK, diagonal)

    def queries(self) -> FullRange | CausalQueryBlocks:
        """What a key's loop runs over."""
        length, diagonal = self.call.query.type.shape[2], self.call.diagonal
        block = block_size(length)
        if diagonal is None or block_count(length, block) == 1:
            return FullRange(length)
        return CausalQueryBlocks(length, block, BLOCK, diagonal)

    def score(self, point: QueryKeyPoint) -> Expr:
        """The score that the softmax is of, in f32: minus infinity where the query does not see the key."""
        call = self.call
        product = self.dot(call.query, call.key, point)
        score = op("mul", product, const(call.scale, f32))
        if call.bias is not None:
            at = (point.batch, point.head, point.query, point.key)
            places = (0 if size == 1 else each for size, each in zip(call.bias.type.shape, at))
            score = op("add", score, cast(Load(call.bias.name, tuple(places), call.bias.type.dtype), f32))
        return self.if_visible(point, score, -math.inf)

    def if_visible(self, point: QueryKeyPoint, value: Expr, other: float) -> Expr:
        """A value where the mask lets the query see the key."""
        if self.call.diagonal is None:
            return value
        seen = op("le", index(point.key), index(add(point.query, self.call.diagonal)))
        return where(seen, value, const(other, value.dtype))

    def dot(self, rows: Value, columns: Value, point: QueryKeyPoint, along: str = "e0") -> Expr:
        """The sum in f32 of the products of what has a query's and what has a key's last dimension."""
        element = symbol(along)
        left, right = self.of_query(rows, point, element), self.of_key(columns, point, element)
        return NestedReduction(((along, rows.type.shape[-1]),), op("mul", cast(left, f32), cast(right, f32)))

    def of_query(self, x: Value, point: QueryKeyPoint, *element: Size) -> Expr:
        """An element of what queries have."""
        return Load(x.name, (point.batch, point.head, point.query, *element), x.type.dtype)

    def of_key(self, x: Value, point: QueryKeyPoint, element: Size) -> Expr:
        """An element of what keys have."""
        return Load(x.name, (point.batch, point.kv_head, point.key, element), x.type.dtype)
