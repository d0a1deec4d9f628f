"""Decoupled look-back scan: CTAs scan chunks of a row, publish their aggregates, and look back at those before them.

After Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (2016), with windows: a CTA
combines the aggregates of its window of ``LOOKBACK_WINDOW`` chunks up to its own with the prefix that the last chunk of
the window before it published.

Forward progress: a CTA takes the number of its chunk from an atomic counter and waits for lower numbers alone. Their
CTAs have started, so each stays resident on an SM until it ends. Of those that have not ended, the one with the lowest
number waits for nothing, since all that it reads was written by CTAs that have ended. It ends, and the next one is the
lowest. A CTA publishes its aggregate before it looks back, so most CTAs wait for memory latency alone.

Visibility: words are written by atomic operations and read by volatile loads, which bypass the L1 cache. A word carries
the flag that it has been written, so no memory order is needed between words. The loop that waits ends by a reduction
over the words that all threads read, so all threads of a CTA leave it in the same iteration. A window has one word per
thread, so that the thread that saw a word's flag is the one that uses its payload.
"""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.loops.tiles import InnerLoop
from litz_codegen_triton.emit.reductions.combiners import CombinerSpec, last_column
from litz_codegen_triton.emit.source.ops_table import triton_type
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import DType, i64
from litz_ir.plan import COUNTER_WORDS, LOOKBACK_WINDOW, chunk_count, workspace_of
from litz_ir.symbols import Size, add, mul, product, symbol

_WRITTEN = 1 << 32
"""The flag in a 64-bit word that says that its 32-bit payload has been written."""


class LookbackScanEmitter:
    """Writes the communication between the CTAs of one scan."""

    def __init__(self, body: TileEmitter, coordinates: TileIndices) -> None:
        self.body = body
        self._chunk = symbol(coordinates.indices["partition"])
        self._chunks = chunk_count(coordinates.kernel)
        self._rows = product(axis.size for axis in coordinates.kernel.outer)
        outer = coordinates.tiles.outer
        self._row: Size = symbol(coordinates.indices[outer[0].letter]) if outer else 0
        scratch = workspace_of(coordinates.kernel)
        assert scratch is not None, "the verifier requires a workspace"
        self._scratch = body.setting.pointers[scratch.name]
        self._position = self._lanes = self._mask = ""

    def index(self, inner: InnerLoop, span: EmittedValue) -> EmittedValue:
        """Return the index along a row; ``span`` is the index along the CTA's chunk, from 0."""
        first = self.body.index.unit(mul(self._chunk, inner.block)).text
        return self.body.writer.define("rindex", f"{first} + {span.text}", span.dims, 0)

    def before(self, found: CombinerSpec, scanned: Sequence[str]) -> list[str]:
        """Publish the CTA's aggregate, unless its chunk is the last of a window; return the state of all chunks before.

        ``scanned`` are the tiles of the scanned chunk, one a component. The result names the components.
        """
        writer = self.body.writer
        position = f"{self.body.index.unit(self._chunk).text} % {LOOKBACK_WINDOW}"
        self._position = writer.define("position", position, frozenset(), 0).text
        writer.open(f"if {self._position} != {LOOKBACK_WINDOW - 1}:")
        self._publish(found, scanned)
        writer.close()
        words = self._words(found)
        return self._combined(
            found,
            [
                self._value(own, dtype, identity)
                for own, dtype, identity in zip(words, found.dtypes, found.identity)
            ],
        )

    def after(self, found: CombinerSpec, running: Sequence[str]) -> None:
        """Publish the inclusive prefix of the row, for the last chunk of a window."""
        writer = self.body.writer
        writer.open(f"if {self._position} == {LOOKBACK_WINDOW - 1}:")
        self._publish(found, running)
        writer.close()

    def _publish(self, found: CombinerSpec, tiles: Sequence[str]) -> None:
        """Write the last column of the tiles for the next chunk to read; the last chunk of a row has no reader."""
        writer, unit = self.body.writer, self.body.index.unit
        after = unit(add(self._chunk, 1)).text
        writer.open(f"if {after} < {unit(self._chunks).text}:")
        half = 0
        for tile, dtype in zip(tiles, found.dtypes):
            total = writer.define("total", last_column(self.body, tile, dtype), frozenset(), writer.depth)
            bits = f"{total.text}.to(tl.int{dtype.bits}, bitcast=True)"
            for shift in range(0, dtype.bits, 32):
                at = unit(add(self._offset(half), 1)).text
                shifted = f"{bits} >> {shift}" if shift else bits
                writer.line(f'tl.atomic_xchg({self._scratch} + {at}, litz_word({shifted}), sem="relaxed")')
                half += 1
        writer.close()

    def _offset(self, half: int) -> Size:
        """Return the offset in the workspace of a 32-bit half of the state that the chunk before this one published."""
        row = add(mul(half, self._rows), self._row)
        return add(add(COUNTER_WORDS, mul(row, self._chunks)), self._chunk)

    def _words(self, found: CombinerSpec) -> list[list[str]]:
        """Wait for the words of the window up to this chunk; return the names of those of each component."""
        writer, unit, position = self.body.writer, self.body.index.unit, self._position
        define = writer.define
        self._lanes = lanes = define("lanes", f"tl.arange(0, {LOOKBACK_WINDOW})", frozenset(), 0).text
        exists = f"({unit(self._chunk).text} - {position} + {lanes} > 0)"
        self._mask = define("mask", f"({lanes} <= {position}) & {exists}", frozenset(), 0).text
        names: list[list[str]] = []
        lines: list[str] = []
        half = 0
        for dtype in found.dtypes:
            names.append([])
            for _ in range(dtype.bits // 32):
                at = f"{self._scratch} + {unit(self._offset(half)).text} - {position} + {lanes}"
                names[-1].append(writer.names.fresh("word"))
                lines.append(
                    f"{names[-1][-1]} = tl.load({at}, mask={self._mask}, other={_WRITTEN}, volatile=True)"
                )
                half += 1
        for line in lines:
            writer.line(line)
        every = " & ".join(name for own in names for name in own)
        writer.open(f"while tl.min({every}, 0) < {_WRITTEN}:")
        for line in lines:
            writer.line(line)
        writer.close()
        return names

    def _value(self, words: Sequence[str], dtype: DType, identity: str) -> str:
        """Decode a component of the states of the chunks before this one, in order; the identity for masked words."""
        bits = words[0] if len(words) == 1 else f"({words[0]} & 4294967295 | ({words[1]} << 32))"
        narrow = bits if dtype.bits == 64 else f"{bits}.to(tl.int32)"
        value = narrow if dtype == i64 else f"{narrow}.to({triton_type(dtype)}, bitcast=True)"
        text = f"tl.where({self._mask}, {value}, {identity})"
        return self.body.writer.define("states", f"{text}.to({triton_type(dtype)})", frozenset(), 0).text

    def _combined(self, found: CombinerSpec, states: Sequence[str]) -> list[str]:
        """Merge the states of the chunks before this one into one state, and return the names of its components."""
        writer = self.body.writer
        operands = states[0] if len(states) == 1 else f"({', '.join(states)})"
        scanned = [writer.names.fresh("scanned") for _ in states]
        writer.line(f"{', '.join(scanned)} = tl.associative_scan({operands}, 0, {found.function})")
        # A scan keeps the order of the states, since a user's combiner need not be commutative. The last state is
        # selected, since the identity on the right need not leave a state unchanged.
        last = f"{self._lanes} == {self._position}"
        names = [writer.names.fresh("before") for _ in scanned]
        for before, name, dtype in zip(names, scanned, found.dtypes):
            writer.line(f"{before} = tl.sum(tl.where({last}, {name}, 0), 0).to({triton_type(dtype)})")
        return names
