"""Attention scores as loop bodies, and loops over the blocks of positions that a causal mask leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.dtypes import f32
from litz_ir.loops import Operation, Pointwise, Value
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
from litz_scheduler.analysis.graph_facts import element_axes
from litz_scheduler.library.attention.attention_calls import AttentionCall

_MIN_BLOCK = 64
"""The fewest positions for which a block is still an efficient tile."""


@dataclass(frozen=True, slots=True)
class BlockRange:
    """The blocks of positions that a causal mask leaves unmasked for a block of rows."""

    length: Size
    """The number of positions."""
    block: int
    """Positions in a block."""
    rows: int
    """Rows in a block of rows: queries for a loop over keys, keys for a loop over queries."""
    diagonal: Size
    """Query ``m`` sees keys ``0`` to ``m + diagonal``."""

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The extents of the summed axes: all blocks, and the positions in a block."""
        return _block_count(self.length, self.block), self.block


@dataclass(frozen=True, slots=True)
class CausalKeyBlocks(BlockRange):
    """The blocks of keys up to the last one that a query of a block of queries sees."""

    def at(self, batch: Size, head: Size, row: Size, inner: Sequence[Size]) -> SummedPosition:
        """Return the key position at a point of the summed axes, for the query ``row``."""
        number, offset = inner
        end = add(mul(add(floordiv(row, self.rows), 1), self.rows), self.diagonal)
        mask = op("lt", index(number), index(_block_count(end, self.block)))
        return _block_position(add(mul(number, self.block), offset), self.length, self.block, mask)


@dataclass(frozen=True, slots=True)
class CausalQueryBlocks(BlockRange):
    """The blocks of queries from the first one that sees a key of a block of keys."""

    def at(self, batch: Size, head: Size, row: Size, inner: Sequence[Size]) -> SummedPosition:
        """Return the query position at a point of the summed axes, for the key ``row``."""
        number, offset = inner
        leading = add(mul(floordiv(row, self.rows), self.rows), mul(self.diagonal, -1))
        first = maximum(0, floordiv(leading, self.block))
        remaining = add(_block_count(self.length, self.block), mul(first, -1))
        position = add(mul(add(first, number), self.block), offset)
        return _block_position(position, self.length, self.block, op("lt", index(number), index(remaining)))


def _block_count(length: Size, block: int) -> Size:
    """Return the number of blocks that hold ``length`` positions."""
    return floordiv(add(length, block - 1), block)


def _block_position(position: Size, length: Size, block: int, mask: Expr) -> SummedPosition:
    """Return a position of a block with its mask; the last block may extend beyond ``length``."""
    if isinstance(length, int) and length % block == 0:
        return SummedPosition(position, mask)
    return SummedPosition(minimum(position, add(length, -1)), mask, op("lt", index(position), index(length)))


def _block_size(length: Size, largest: int) -> int:
    """Return the positions in a block: ``largest``, or 64 where ``length`` is a multiple of that alone."""
    divisor = length & -length if isinstance(length, int) else 0
    return min(largest, divisor) if divisor >= _MIN_BLOCK else largest


def loop(call: Operation, result: Value, body: Expr) -> Pointwise:
    """Return the pointwise loop that computes one result of a call from the body of its elements."""
    return Pointwise(results=(result,), axes=element_axes(result.type), bodies=(body,), origin=call.origin)


@dataclass(frozen=True, slots=True)
class AttentionScores:
    """The scores of an attention call as expressions, for use in any loop body."""

    call: AttentionCall
    """The attention whose scores these are."""

    def heads(self) -> Heads:
        """Return the loops over heads.

        The query heads of one KV head become rows of one tile, unless a causal mask depends on the row.
        """
        kv_heads = self.call.key.type.shape[1]
        return Heads(kv_heads, self.call.group, split=self.call.diagonal is None)

    def keys(self) -> FullRange | CausalKeyBlocks:
        """Return the key positions that the loop of a query sums over."""
        length, diagonal = self.call.keys, self.call.diagonal
        largest = self.call.routine.block
        block = _block_size(length, largest)
        if diagonal is None or _block_count(length, block) == 1:
            return FullRange(length)
        return CausalKeyBlocks(length, block, largest, diagonal)

    def queries(self) -> FullRange | CausalQueryBlocks:
        """Return the query positions that the loop of a key sums over."""
        length, diagonal = self.call.query.type.shape[2], self.call.diagonal
        largest = self.call.routine.block
        block = _block_size(length, largest)
        if diagonal is None or _block_count(length, block) == 1:
            return FullRange(length)
        return CausalQueryBlocks(length, block, largest, diagonal)

    def score(self, point: QueryKeyPoint) -> Expr:
        """Return the f32 score before the softmax; minus infinity where the key is masked."""
        call = self.call
        dot = self.dot(call.query, call.key, point)
        score = op("mul", dot, const(call.scale, f32))
        if call.bias is not None:
            at = (point.batch, point.head, point.query, point.key)
            shape = call.bias.type.shape
            indices = (0 if size == 1 else each for size, each in zip(shape, at[len(at) - len(shape) :]))
            score = op("add", score, cast(Load(call.bias.name, tuple(indices), call.bias.type.dtype), f32))
        return self.if_visible(point, score, -math.inf)

    def if_visible(self, point: QueryKeyPoint, value: Expr, other: float) -> Expr:
        """Return ``value`` where the query sees the key, and ``other`` where the causal mask hides it."""
        if self.call.diagonal is None:
            return value
        visible = op("le", index(point.key), index(add(point.query, self.call.diagonal)))
        return where(visible, value, const(other, value.dtype))

    def dot(self, rows: Value, columns: Value, point: QueryKeyPoint, name: str = "e0") -> Expr:
        """Return the f32 dot product of a query's row of ``rows`` and a key's row of ``columns``.

        ``name`` is the summed index; both have the same last dimension.
        """
        element = symbol(name)
        query, key = self.of_query(rows, point, element), self.of_key(columns, point, element)
        return NestedReduction(((name, rows.type.shape[-1]),), op("mul", cast(query, f32), cast(key, f32)))

    def of_query(self, x: Value, point: QueryKeyPoint, *element: Size) -> Expr:
        """Return the element of ``x`` (batch, query head, query position, ...) at the query of a point."""
        return Load(x.name, (point.batch, point.head, point.query, *element), x.type.dtype)

    def of_key(self, x: Value, point: QueryKeyPoint, element: Size) -> Expr:
        """Return the element of ``x`` (batch, KV head, key position, element) at the key of a point."""
        return Load(x.name, (point.batch, point.kv_head, point.key, element), x.type.dtype)
