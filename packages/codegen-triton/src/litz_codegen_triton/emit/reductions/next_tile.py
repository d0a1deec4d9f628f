"""Loads of the next tile of a loop, issued before the current tile is computed.

Threads that sum the rows of a tile wait for the slowest one, with no load in flight. Registers hold what is loaded, in
the representation of memory: software pipelining stages take tiles through shared memory, at which threads wait again.
"""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.indexing.prefetch import early_loads
from litz_codegen_triton.emit.indexing.statements import values_of
from litz_codegen_triton.emit.loops.tiles import InnerLoop
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.plan import Statement
from litz_ir.scalar import Load
from litz_ir.symbols import free_symbols, substitute


class NextTile:
    """Writer of the loads of one loop over full tiles, of the phase ``number``."""

    def __init__(
        self,
        body: TileEmitter,
        coordinates: TileIndices,
        number: int,
        inner: InnerLoop,
        statements: Sequence[Statement],
    ) -> None:
        self.body = body
        self._coordinates = coordinates
        self._number = number
        self._inner = inner
        self._index = coordinates.indices[f"r{number}"]
        self._eviction = inner.eviction
        self._loaded: list[tuple[Load, EmittedValue]] = []
        self._found = [
            load
            for load in early_loads(value for each in statements for value in values_of(each))
            if self._index in free_symbols(load.index[0])
            and body.setting.parameters[load.buffer].access == "in"
        ]

    def begin(self, start: str, span: EmittedValue) -> None:
        """Write the loads of the first tile, before the loop."""
        for load, value in self._loads("first", f"{start} + {span.text}", span):
            name = self.body.writer.define("next", value.text, value.dims, self.body.writer.depth)
            self._loaded.append((load, name))

    def step(self, offset: str, size: str, block: str, span: EmittedValue) -> None:
        """Write the values of the tile at ``offset``, and the loads of the one after it, at the start of an
        iteration. The last tile is loaded once more after itself, from the cache."""
        body, writer = self.body, self.body.writer
        for load, name in self._loaded:
            dtype = body.setting.parameters[load.buffer].dtype
            text = casts.decode(name.text, dtype, body.form)
            body.cache.remember(load, writer.define(load.buffer, text, name.dims, writer.depth))
        start = f"tl.minimum({offset} + {block}, {size} - {block}) + {span.text}"
        for (_, name), (_, value) in zip(self._loaded, self._loads("next", start, span), strict=True):
            writer.line(f"{name.text} = {value.text}")

    def _loads(self, kind: str, start: str, span: EmittedValue) -> list[tuple[Load, EmittedValue]]:
        """Return the loads with their text for the tile at ``start``."""
        body, writer = self.body, self.body.writer
        index = self._coordinates.index(f"r{self._number}_{kind}_", self._inner.size)
        body.index.symbols[index.name] = writer.define(f"r{kind}", start, span.dims, writer.depth)
        found = []
        body.memory.eviction = self._eviction
        for load in self._found:
            moved = Load(load.buffer, (substitute(load.index[0], {self._index: index}),), load.dtype)
            found.append((load, body.memory.stored_element(moved)))
        body.memory.eviction = {}
        return found
