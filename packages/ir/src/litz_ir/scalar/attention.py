"""Heads and positions of attention scores: query heads that share a KV head, and positions on the summed axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.dtypes import f32
from litz_ir.scalar import build
from litz_ir.scalar.node import Expr
from litz_ir.symbols.polynomials import add, mul
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.term import Size


@dataclass(frozen=True, slots=True)
class QueryKeyPoint:
    """Batch, heads and positions of one attention score."""

    batch: Size
    """Index of the batch."""
    head: Size
    """Query head."""
    kv_head: Size
    """Head of keys and values that the query head uses."""
    query: Size
    """Position of the query."""
    key: Size
    """Position of the key."""
    promised: Expr | None = None
    """Condition under which a block mask promises that the query sees the key; ``None`` if it never does."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The loops over query heads, in groups that share one KV head (GQA)."""

    kv_heads: Size
    """Number of KV heads."""
    group_size: Size
    """Query heads that share one KV head."""
    split: bool = True
    """True for two loops, over KV heads and over the heads of a group; False for one loop over all query heads."""

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Extents of the loops."""
        if self.group_size == 1:
            return (self.kv_heads,)
        return (self.kv_heads, self.group_size) if self.split else (mul(self.kv_heads, self.group_size),)

    def divided(self, head: Size) -> tuple[Size, ...]:
        """Indices of the loops at which a query head is computed."""
        if self.group_size == 1 or not self.split:
            return (head,)
        if self.kv_heads == 1:
            return 0, head
        return floordiv(head, self.group_size), mod(head, self.group_size)

    def at(self, indices: Sequence[Size]) -> tuple[Size, Size]:
        """Query head and KV head at a point of the loops."""
        if len(indices) > 1:
            return add(mul(indices[0], self.group_size), indices[1]), indices[0]
        return indices[0], indices[0] if self.group_size == 1 else floordiv(indices[0], self.group_size)


@dataclass(frozen=True, slots=True)
class SummedPosition:
    """A key or query position on the summed axes, with its masks."""

    position: Size
    """Position in the sequence."""
    mask: Expr | None = None
    """Condition under which memory at the position may be read; ``None`` if it always may."""
    in_range: Expr | None = None
    """Condition under which a position of a block lies within the sequence; ``None`` if it always does."""
    promised: Expr | None = None
    """Condition under which the position is in a block that a block mask lists as full; ``None`` if it never is."""

    def or_else(self, value: Expr, other: Expr) -> Expr:
        """The value computed at the position, or ``other`` if the position is masked or out of range."""
        if self.in_range is not None:
            value = build.where(self.in_range, value, other)
        return self.read(value, other)

    def read(self, value: Expr, other: Expr) -> Expr:
        """The value loaded at the position, or ``other`` if it may not be read."""
        return value if self.mask is None else build.masked(self.mask, value, other)

    def term(self, computed: Expr, loaded: Expr) -> Expr:
        """The f32 summand of the position: ``computed * loaded``; 0 if the position is
        masked.
        """
        zero = build.const(0.0, f32)
        computed, loaded = (build.cast(each, f32) for each in (computed, loaded))
        return build.op("mul", self.or_else(computed, zero), self.read(loaded, zero))


@dataclass(frozen=True, slots=True)
class FullRange:
    """All positions below a length, where no block mask applies."""

    length: Size
    """Number of positions."""

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Extents of the summed axes."""
        return (self.length,)

    @property
    def heads(self) -> bool:
        """True if the positions depend on the head."""
        return False

    def at(self, batch: Size, head: Size, row: Size, inner: Sequence[Size]) -> SummedPosition:
        """The position at a point of the summed axes, for one row."""
        return SummedPosition(inner[0])


def normalized(weighted: Expr, total: Expr) -> Expr:
    """The softmax-weighted mean of an f32 weighted sum and total weight; zero if the total is zero."""
    zero = build.const(0.0, f32)
    return build.where(build.op("eq", total, zero), zero, build.op("div", weighted, total))
