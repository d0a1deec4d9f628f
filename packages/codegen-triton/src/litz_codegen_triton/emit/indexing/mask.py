"""Masks of loads and stores: the points of a tile that exist, under the conditions of masked expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from litz_codegen_triton.emit.source.text import CodeWriter, EmittedValue


class Masks:
    """The masks of one kernel.

    ``tails`` holds, by dimension, the mask of the points that exist; a dimension whose extent is a multiple of its
    block has none. ``last`` is the mask of the last point of a tile along ``r``. ``conditions`` are those of the masked
    expressions that enclose the one being written: a load under a false condition may be out of bounds. ``order`` is
    the order of the dimensions, the slowest first.
    """

    def __init__(self, writer: CodeWriter, order: Sequence[str]) -> None:
        self.writer = writer
        self.order = tuple(order)
        self.tails: dict[str, EmittedValue] = {}
        self.last = ""
        self.conditions: tuple[EmittedValue, ...] = ()

    @contextmanager
    def under(self, condition: EmittedValue) -> Iterator[None]:
        """Add ``condition`` to the masks of all accesses that are written in this context."""
        outside = self.conditions
        self.conditions = outside if condition in outside else (*outside, condition)
        try:
            yield
        finally:
            self.conditions = outside

    @property
    def condition_dims(self) -> frozenset[str]:
        """Dimensions along which the conditions vary."""
        return frozenset().union(*(condition.dims for condition in self.conditions))

    def access_mask(self, dims: frozenset[str]) -> EmittedValue | None:
        """Return the mask of an access whose address varies along ``dims``; ``None`` if it needs none."""
        return self.mask_under(self.conditions, dims | self.condition_dims)

    def mask_under(self, conditions: Sequence[EmittedValue], dims: frozenset[str]) -> EmittedValue | None:
        """Return the mask of an access along ``dims`` under some conditions alone; ``None`` if it needs none."""
        tails = [self.tails[letter] for letter in self.order if letter in dims and letter in self.tails]
        return self.conjunction([*tails, *dict.fromkeys(conditions)])

    def conjunction(self, masks: Sequence[EmittedValue]) -> EmittedValue | None:
        """Combine masks by a logical and; ``None`` for no masks."""
        if len(masks) < 2:
            return masks[0] if masks else None
        key = ("mask", *(mask.text for mask in masks))
        found = self.writer.known(key)
        if found is not None:
            return found
        dims = frozenset().union(*(mask.dims for mask in masks))
        depth = max(mask.depth for mask in masks)
        combined = self.writer.define("mask", " & ".join(mask.text for mask in masks), dims, depth)
        return self.writer.remember(key, combined)
