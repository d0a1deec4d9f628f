"""The shape of the tiles that are being written, and values as tensors of that shape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from litz_codegen_triton.emit.indexing.index import IndexTerms
from litz_codegen_triton.emit.indexing.mask import Masks
from litz_codegen_triton.emit.source.ops_table import triton_type
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import DType

Dims = tuple[tuple[str, str], ...]
"""Dimensions of a tile, slowest first: a letter, and its block as text, such as ``("x", "XBLOCK")``."""


class TileShape:
    """The dimensions of the tiles that are being written, ``dims``; masks have the same order of dimensions."""

    def __init__(self, dims: Dims, masks: Masks, index: IndexTerms) -> None:
        self.dims = dims
        self._masks = masks
        self._index = index

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of the dimensions, slowest first."""
        return tuple(letter for letter, _ in self.dims)

    @contextmanager
    def over(self, dims: Dims) -> Iterator[None]:
        """Set the dimensions of the tiles written meanwhile. Those that stay must keep their position."""
        outside = self.dims
        self._set(dims)
        try:
            yield
        finally:
            self._set(outside)

    def _set(self, dims: Dims) -> None:
        """Replace the dimensions, and their order in masks."""
        self.dims = dims
        self._masks.order = self.letters

    def text(self, dims: frozenset[str]) -> str:
        """Return the shape of a tile that varies along ``dims``, as text."""
        return f"[{', '.join(block if letter in dims else '1' for letter, block in self.dims)}]"

    def broadcast(self, text: str, dims: frozenset[str]) -> str:
        """Return the text of a tensor broadcast to a tile that varies along ``dims``."""
        return f"tl.broadcast_to({text}, {self.text(dims)})"

    def spread(self, value: EmittedValue, dims: frozenset[str]) -> str:
        """Return the text of an index as one that varies along ``dims``, or is a scalar where there are none."""
        if dims <= value.dims or not dims:
            return value.text
        if value.literal:
            return f"tl.full({self.text(dims)}, {value.text}, {self._index.type})"
        return self.broadcast(value.text, dims | value.dims)


def typed(value: EmittedValue, dtype: DType) -> str:
    """Return the text of a value as a tensor, also where it is a literal."""
    return f"tl.full([], {value.text}, {triton_type(dtype)})" if value.literal else value.text
