"""Masks: which points of a tile exist, and where the bodies of masked expressions are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from litz_codegen_triton.emit.text import CodeWriter, EmittedValue


class Masks:
    """The masks of one kernel.

    ``tails`` holds, by dimension, the mask of the points that exist; dimensions that their tiles cover exactly have
    none. ``last`` is the mask of the last point of a tile along ``r``. ``conditions`` are those of the masked
    expressions being written: nothing may be read where one is false.
    """

    def __init__(self, writer: CodeWriter, order: Sequence[str]) -> None:
        self.writer = writer
        self.order = tuple(order)
        self.tails: dict[str, EmittedValue] = {}
        self.last = ""
        self.conditions: tuple[EmittedValue, ...] = ()

    @contextmanager
    def under(self, condition: EmittedValue) -> Iterator[None]:
        """Write what follows as wanted only where ``condition`` holds."""
        outside = self.conditions
        self.conditions = outside if condition in outside else (*outside, condition)
        try:
            yield
        finally:
            self.conditions = outside

    @property
    def condition_dims(self) -> frozenset[str]:
        """The dimensions along which the conditions vary."""
        return frozenset().union(*(condition.dims for condition in self.conditions))

    def guarding(self, dims: frozenset[str]) -> EmittedValue | None:
        """The mask of an access whose address varies along ``dims``; ``None`` when it needs none."""
        dims = dims | self.condition_dims
        parts = [self.tails[letter] for letter in self.order if letter in dims and letter in self.tails]
        return self.conjunction([*parts, *self.conditions])

    def conjunction(self, parts: Sequence[EmittedValue]) -> EmittedValue | None:
        """The points at which all of ``parts`` hold."""
        if len(parts) < 2:
            return parts[0] if parts else None
        key = ("mask", *(part.text for part in parts))
        found = self.writer.known(key)
        if found is not None:
            return found
        dims = frozenset().union(*(part.dims for part in parts))
        depth = max(part.depth for part in parts)
        mask = self.writer.define("mask", " & ".join(part.text for part in parts), dims, depth)
        return self.writer.remember(key, mask)
