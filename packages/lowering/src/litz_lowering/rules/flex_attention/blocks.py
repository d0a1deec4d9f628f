"""Which keys a query's loop runs over, or which queries a key's: all, or those of the blocks that are listed for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from litz_ir.dtypes import i32, i64
from litz_ir.scalar import Expr, FullRange, Indirect, SummedPosition, build
from litz_ir.symbols import Size, add, floordiv, minimum, mul
from litz_lowering.values import Tensor

_OF_KEYS, _OF_QUERIES = 2, 6
"""Where a block mask has the lists of keys for blocks of queries, and those of queries for blocks of keys: how many
blocks are listed and which, of those that the mask hides in part and then of those that it shows as a whole."""

TILE = 16
"""What a block has to be a multiple of."""


@dataclass(frozen=True, slots=True)
class ListedBlocks:
    """Blocks of ``size`` positions below ``length``; ``counts`` and ``indices`` list those for every block of ``rows``
    rows, in up to two lists, one after the other."""

    counts: tuple[Tensor, ...]
    indices: tuple[Tensor, ...]
    rows: int
    size: int
    length: Size

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The extents of the summed axes: a list's places, and a block's positions."""
        return self.indices[0].shape[-1], self.size

    @property
    def batches(self) -> bool:
        """True where the batch's members have lists of their own."""
        return any(each.shape[0] != 1 for each in self.counts)

    @property
    def heads(self) -> bool:
        """True where heads have lists of their own."""
        return any(each.shape[1] != 1 for each in self.counts)

    def at(self, batch: Size, head: Size, row: Size, inner: Sequence[Size]) -> SummedPosition:
        """The place at a point of the summed axes, for a row."""
        listed, within = inner

        def row_of(list_: Tensor, *places: Size) -> Expr:
            own = (0 if size == 1 else at for size, at in zip(list_.shape, (batch, head)))
            return build.cast(list_.load((*own, floordiv(row, self.rows), *places)), i32)

        number = build.cast(build.index(listed), i32)
        count = row_of(self.counts[0])
        block = row_of(self.indices[0], listed)
        guard = build.op("lt", number, count)
        if len(self.counts) > 1:
            more = build.cast(build.op("sub", number, count), i64)
            further = Indirect(more, self.indices[1].shape[-1], False, "clamped")
            block = build.where(guard, block, row_of(self.indices[1], further))
            guard = build.op("lt", number, build.op("add", count, row_of(self.counts[1])))
        blocks = self.indices[0].shape[-1]
        position = add(mul(Indirect(block, blocks, False, "assumed"), self.size), within)
        if mul(blocks, self.size) == self.length:
            return SummedPosition(position, guard)
        inside = build.op("lt", build.index(position), build.index(self.length))
        return SummedPosition(minimum(position, add(self.length, -1)), guard, inside)


def keys_of(block_mask: Sequence[Any], queries: Size, keys: Size) -> FullRange | ListedBlocks:
    """What a query's loop runs over."""
    *_, rows, size, _ = block_mask
    return _listed(block_mask[_OF_KEYS : _OF_KEYS + 4], rows, size, queries, keys)


def queries_of(block_mask: Sequence[Any], queries: Size, keys: Size) -> FullRange | ListedBlocks:
    """What a key's loop runs over."""
    *_, size, rows, _ = block_mask
    return _listed(block_mask[_OF_QUERIES : _OF_QUERIES + 4], rows, size, keys, queries)


def _listed(
    lists: Sequence[Any], rows: Any, size: Any, count: Size, length: Size
) -> FullRange | ListedBlocks:
    """The blocks that are listed for ``count`` rows, where that leaves something out and tiles fit into blocks."""
    pairs = [pair for pair in (lists[:2], lists[2:]) if all(isinstance(each, Tensor) for each in pair)]
    whole = FullRange(length)
    if not pairs or not pairs[0] or not (isinstance(rows, int) and isinstance(size, int)):
        return whole
    counts, indices = ([pair[k] for pair in pairs] for k in (0, 1))
    if rows % TILE or size % TILE or indices[0].shape[-1] == 1:
        return whole
    for each in counts:
        covered = mul(each.shape[2], rows)
        if isinstance(count, int) and isinstance(covered, int) and covered < count:
            return whole
    return ListedBlocks(tuple(counts), tuple(indices), rows, size, length)
