"""Ranges of the sums of attention: all positions, or those of the blocks that a block mask lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from litz_ir.dtypes import i32, i64
from litz_ir.scalar import Expr, FullRange, Indirect, SummedPosition, build
from litz_ir.symbols import Size, add, floordiv, minimum, mul
from litz_lowering.contexts.values import Tensor

_OF_KEYS, _OF_QUERIES = 2, 6
"""Positions in a block mask of the lists of key blocks, and of query blocks: counts and indices of partially
masked blocks, then of full blocks."""

TILE = 16
"""Required divisor of block sizes."""


@dataclass(frozen=True, slots=True)
class ListedBlocks:
    """Listed blocks of ``size`` positions below ``length``."""

    counts: tuple[Tensor, ...]
    """Number of listed blocks for every block of rows, in up to two lists."""
    indices: tuple[Tensor, ...]
    """Indices of the listed blocks, in as many lists."""
    rows: int
    """Number of rows that share a list."""
    size: int
    """Number of positions in a block."""
    length: Size
    """Number of positions in total."""

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Sizes of the summed axes: entries of a list, and positions of a block."""
        return self.indices[0].shape[-1], self.size

    @property
    def batches(self) -> bool:
        """True where members of the batch have lists of their own."""
        return any(each.shape[0] != 1 for each in self.counts)

    @property
    def heads(self) -> bool:
        """True where heads have lists of their own."""
        return any(each.shape[1] != 1 for each in self.counts)

    def at(self, batch: Size, head: Size, row: Size, inner: Sequence[Size]) -> SummedPosition:
        """Position at a point of the summed axes, for a row."""
        listed, within = inner

        def row_of(list_: Tensor, *places: Size) -> Expr:
            own = (0 if size == 1 else at for size, at in zip(list_.shape, (batch, head)))
            return build.cast(list_.load((*own, floordiv(row, self.rows), *places)), i32)

        number = build.cast(build.index(listed), i32)
        count = row_of(self.counts[0])
        block = row_of(self.indices[0], listed)
        mask = build.op("lt", number, count)
        full = None
        if len(self.counts) > 1:
            full = build.op("bit_not", mask)
            offset = build.cast(build.op("sub", number, count), i64)
            second = Indirect(offset, self.indices[1].shape[-1], False, "clamped")
            block = build.where(mask, block, row_of(self.indices[1], second))
            mask = build.op("lt", number, build.op("add", count, row_of(self.counts[1])))
        blocks = self.indices[0].shape[-1]
        position = add(mul(Indirect(block, blocks, False, "assumed"), self.size), within)
        if mul(blocks, self.size) == self.length:
            return SummedPosition(position, mask, promised=full)
        inside = build.op("lt", build.index(position), build.index(self.length))
        return SummedPosition(minimum(position, add(self.length, -1)), mask, inside, full)


def keys_of(block_mask: Sequence[Any], queries: Size, keys: Size) -> FullRange | ListedBlocks:
    """Keys that a query's sum runs over."""
    *_, rows, size, _ = block_mask
    return _listed(block_mask[_OF_KEYS : _OF_KEYS + 4], rows, size, queries, keys)


def queries_of(block_mask: Sequence[Any], queries: Size, keys: Size) -> FullRange | ListedBlocks:
    """Queries that a key's sum runs over."""
    *_, size, rows, _ = block_mask
    return _listed(block_mask[_OF_QUERIES : _OF_QUERIES + 4], rows, size, keys, queries)


def _listed(
    lists: Sequence[Any], rows: Any, size: Any, count: Size, length: Size
) -> FullRange | ListedBlocks:
    """Listed blocks for ``count`` rows, where the lists leave out blocks and tiles fit into blocks; else all
    positions."""
    pairs = [pair for pair in (lists[:2], lists[2:]) if all(isinstance(each, Tensor) for each in pair)]
    full = FullRange(length)
    if not pairs or not pairs[0] or not (isinstance(rows, int) and isinstance(size, int)):
        return full
    counts, indices = ([pair[k] for pair in pairs] for k in (0, 1))
    if rows % TILE or size % TILE or indices[0].shape[-1] == 1:
        return full
    for each in counts:
        covered = mul(each.shape[2], rows)
        if isinstance(count, int) and isinstance(covered, int) and covered < count:
            return full
    return ListedBlocks(tuple(counts), tuple(indices), rows, size, length)
