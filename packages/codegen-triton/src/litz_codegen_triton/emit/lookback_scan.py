"""Scans whose rows programs have in parts: where a part is, and what a program learns of those before it.

No program waits for one that may never run. A part belongs to the program that takes its number from a counter, and
waits only for parts of lower numbers: their programs have begun, so each keeps its place on a processor until it ends.
Of those that have not ended, the one of the lowest number waits for none, since whatever it looks for was written by
programs that have ended. It ends, and the next one is the lowest. A program writes what its own part comes to before
it looks back, so most of them wait for memory alone. What is written is seen at last: words are written by atomic
operations and read past the caches of processors.

A word says by itself that it has been written, so nothing has to be seen in order. A window has as many words as a
program has threads: the very thread whose word tells that it is there goes on with it. All threads of a program leave
the loop that waits together, since what ends it is combined of what all of them read.
"""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_triton.emit.body import TileEmitter
from litz_codegen_triton.emit.combiners import CombinerSpec, last_column
from litz_codegen_triton.emit.coordinates import TileIndices
from litz_codegen_triton.emit.ops_table import triton_type
from litz_codegen_triton.emit.text import EmittedValue
from litz_codegen_triton.emit.tiles import InnerLoop
from litz_ir.dtypes import DType, i64
from litz_ir.plan import COUNTER_WORDS, LOOKBACK_WINDOW, chunk_count, workspace_of
from litz_ir.symbols import Size, add, mul, product, symbol

_WRITTEN = 1 << 32
"""The bit that says that a word has been written."""


class LookbackScanEmitter:
    """One scan whose rows programs have in parts."""

    def __init__(self, body: TileEmitter, coordinates: TileIndices) -> None:
        self.body = body
        self._piece = symbol(coordinates.indices["piece"])
        self._parts = chunk_count(coordinates.kernel)
        self._rows = product(axis.size for axis in coordinates.kernel.outer)
        outer = coordinates.tiles.outer
        self._row: Size = symbol(coordinates.indices[outer[0].letter]) if outer else 0
        scratch = workspace_of(coordinates.kernel)
        assert scratch is not None, "the verifier asks for it"
        self._scratch = body.setting.pointers[scratch.name]
        self._place = self._looking = self._wanted = ""

    def index(self, inner: InnerLoop, span: EmittedValue) -> EmittedValue:
        """The index of a row's points, of which ``span`` counts those of the program from 0."""
        first = self.body.index.unit(mul(self._piece, inner.block)).text
        return self.body.writer.define("rindex", f"{first} + {span.text}", span.dims, 0)

    def before(self, found: CombinerSpec, scanned: Sequence[str]) -> list[str]:
        """Write down what the program's part, which is scanned, comes to, unless a window ends with it; then write what
        all before it come to: a state, by name."""
        writer = self.body.writer
        here = f"{self.body.index.unit(self._piece).text} % {LOOKBACK_WINDOW}"
        self._place = writer.define("place", here, frozenset(), 0).text
        writer.open(f"if {self._place} != {LOOKBACK_WINDOW - 1}:")
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
        """Where a window ends with the program's part, write down what its row comes to so far."""
        writer = self.body.writer
        writer.open(f"if {self._place} == {LOOKBACK_WINDOW - 1}:")
        self._publish(found, running)
        writer.close()

    def _publish(self, found: CombinerSpec, tiles: Sequence[str]) -> None:
        """Write the last column of tiles where the part after this one looks; nobody looks after the last one."""
        writer, unit = self.body.writer, self.body.index.unit
        after = unit(add(self._piece, 1)).text
        writer.open(f"if {after} < {unit(self._parts).text}:")
        half = 0
        for tile, dtype in zip(tiles, found.dtypes):
            total = writer.define("total", last_column(self.body, tile, dtype), frozenset(), writer.depth)
            bits = f"{total.text}.to(tl.int{dtype.bits}, bitcast=True)"
            for shift in range(0, dtype.bits, 32):
                at = unit(add(self._at(half), 1)).text
                shifted = f"{bits} >> {shift}" if shift else bits
                writer.line(f'tl.atomic_xchg({self._scratch} + {at}, litz_word({shifted}), sem="relaxed")')
                half += 1
        writer.close()

    def _at(self, half: int) -> Size:
        """Where a half of what the part before this one comes to is."""
        row = add(mul(half, self._rows), self._row)
        return add(add(COUNTER_WORDS, mul(row, self._parts)), self._piece)

    def _words(self, found: CombinerSpec) -> list[list[str]]:
        """Wait for the words of the window up to this part's; those of each component."""
        writer, unit, place = self.body.writer, self.body.index.unit, self._place
        define = writer.define
        self._looking = looking = define("looking", f"tl.arange(0, {LOOKBACK_WINDOW})", frozenset(), 0).text
        there = f"({unit(self._piece).text} - {place} + {looking} > 0)"
        self._wanted = define("wanted", f"({looking} <= {place}) & {there}", frozenset(), 0).text
        names: list[list[str]] = []
        lines: list[str] = []
        half = 0
        for dtype in found.dtypes:
            names.append([])
            for _ in range(dtype.bits // 32):
                at = f"{self._scratch} + {unit(self._at(half)).text} - {place} + {looking}"
                names[-1].append(writer.names.fresh("word"))
                lines.append(
                    f"{names[-1][-1]} = tl.load({at}, mask={self._wanted}, other={_WRITTEN}, volatile=True)"
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
        """A component of what the parts before this one come to, in their order; the identity where there is none."""
        bits = words[0] if len(words) == 1 else f"({words[0]} & 4294967295 | ({words[1]} << 32))"
        narrow = bits if dtype.bits == 64 else f"{bits}.to(tl.int32)"
        value = narrow if dtype == i64 else f"{narrow}.to({triton_type(dtype)}, bitcast=True)"
        text = f"tl.where({self._wanted}, {value}, {identity})"
        return self.body.writer.define("parts", f"{text}.to({triton_type(dtype)})", frozenset(), 0).text

    def _combined(self, found: CombinerSpec, parts: Sequence[str]) -> list[str]:
        """All before this part as one state."""
        writer = self.body.writer
        operands = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
        scanned = [writer.names.fresh("scanned") for _ in parts]
        writer.line(f"{', '.join(scanned)} = tl.associative_scan({operands}, 0, {found.function})")
        # Nobody promised that a combination is commutative, nor that its identity is one on the right.
        last = f"{self._looking} == {self._place}"
        names = [writer.names.fresh("before") for _ in scanned]
        for before, name, dtype in zip(names, scanned, found.dtypes):
            writer.line(f"{before} = tl.sum(tl.where({last}, {name}, 0), 0).to({triton_type(dtype)})")
        return names
