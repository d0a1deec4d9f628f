"""Where attention finds a query and a key: heads that share keys, and places along what is summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.dtypes import f32
from litz_ir.scalar import build
from litz_ir.scalar.expr import Expr
from litz_ir.symbols.term import Size, add, floordiv, mod, mul


@dataclass(frozen=True, slots=True)
class QueryKeyPoint:
    """A query and a key: batch, the query's head and the key's, and their positions."""

    batch: Size
    head: Size
    kv_head: Size
    query: Size
    key: Size


@dataclass(frozen=True, slots=True)
class Heads:
    """How loops run over the heads of queries, ``group_size`` of which share one of keys: over both, or, where they
    are not
    ``split``, over all those of queries at once."""

    kv_heads: Size
    group_size: Size
    split: bool = True

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The extents of the loops."""
        if self.group_size == 1:
            return (self.kv_heads,)
        return (self.kv_heads, self.group_size) if self.split else (mul(self.kv_heads, self.group_size),)

    def divided(self, head: Size) -> tuple[Size, ...]:
        """Where the loops meet a head of the queries."""
        if self.group_size == 1 or not self.split:
            return (head,)
        if self.kv_heads == 1:
            return 0, head
        return floordiv(head, self.group_size), mod(head, self.group_size)

    def at(self, indices: Sequence[Size]) -> tuple[Size, Size]:
        """The heads of queries and keys at a point of the loops."""
        if len(indices) > 1:
            return add(mul(indices[0], self.group_size), indices[1]), indices[0]
        return indices[0], indices[0] if self.group_size == 1 else floordiv(indices[0], self.group_size)


@dataclass(frozen=True, slots=True)
class SummedPosition:
    """A position along what is summed, where it is read (``mask`` holds, if there is one), and which is one of a
    block's positions beyond the end unless ``in_range`` holds."""

    position: Size
    mask: Expr | None = None
    in_range: Expr | None = None

    def or_else(self, value: Expr, other: Expr) -> Expr:
        """What is computed at the position; ``other`` where there is none."""
        if self.in_range is not None:
            value = build.where(self.in_range, value, other)
        return self.read(value, other)

    def read(self, value: Expr, other: Expr) -> Expr:
        """What is read at the position; ``other`` where nothing may be."""
        return value if self.mask is None else build.masked(self.mask, value, other)

    def term(self, left: Expr, right: Expr) -> Expr:
        """What the position adds to a sum of products, in f32: ``left`` is computed there, ``right`` is read."""
        nothing = build.const(0.0, f32)
        computed, read = (build.cast(each, f32) for each in (left, right))
        return build.op("mul", self.or_else(computed, nothing), self.read(read, nothing))


@dataclass(frozen=True, slots=True)
class FullRange:
    """All positions below ``length``."""

    length: Size

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The extents of the summed axes."""
        return (self.length,)

    @property
    def heads(self) -> bool:
        """True where heads have positions of their own."""
        return False

    def at(self, batch: Size, head: Size, row: Size, inner: Sequence[Size]) -> SummedPosition:
        """The place at a point of the summed axes, for a row."""
        return SummedPosition(inner[0])


def normalized(weighted: Expr, total: Expr) -> Expr:
    """The mean that weights of a ``total`` give; zero where nothing weighs anything."""
    nothing = build.const(0.0, f32)
    return build.where(build.op("eq", total, nothing), nothing, build.op("div", weighted, total))
