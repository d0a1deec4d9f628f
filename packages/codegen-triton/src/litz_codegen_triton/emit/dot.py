"""A contraction tile by tile: both factors over tiles of their own, multiplied where the machine does that at once."""

from __future__ import annotations

from litz_codegen_triton.emit import casts
from litz_codegen_triton.emit.body import TileEmitter
from litz_codegen_triton.emit.combiners import converted
from litz_codegen_triton.emit.contraction import Contraction
from litz_codegen_triton.emit.coordinates import TileIndices
from litz_codegen_triton.emit.descriptor import Descriptor, contraction_operands, descriptors
from litz_codegen_triton.emit.operand import operand_tile, precision_of, tile_range
from litz_codegen_triton.emit.ops_table import triton_type
from litz_codegen_triton.emit.tiles import InnerLoop
from litz_ir.plan import Accumulate
from litz_ir.scalar import Expr
from litz_ir.symbols import bounds


class Dot:
    """Writes the phase of a contraction.

    The body's tiles are of rows by columns (``y``, ``x``); the left factor's are of rows by summed points (``y``,
    ``r``), the right one's of summed points by columns (``r``, ``x``). ``prologue`` are the lines that make
    descriptors of factors: they stand before all tiles.
    """

    def __init__(
        self, body: TileEmitter, coordinates: TileIndices, found: Contraction, inner: InnerLoop
    ) -> None:
        self.body = body
        self.found = found
        self.inner = inner
        self.size = body.index.unit(inner.size).text
        self.coordinates = coordinates
        self.indices = coordinates.summed
        y, x = body.setting.dims
        r = ("r", "RBLOCK")
        self.dims = ((y, r), (r, x))
        self.prologue: list[str] = []

    def write(self, statement: Accumulate, stages: int) -> None:
        """Write the loop and define the result; ``stages`` tiles of factors are on their way at a time."""
        body, ((name, dtype), *_) = self.body, statement.results
        every = frozenset(letter for letter, _ in body.setting.dims)
        nothing = "0.0" if self.found.accumulator.is_float else "0"
        zeros = f"tl.full({body.shape(every)}, {nothing}, {triton_type(self.found.accumulator)})"
        total = body.writer.define(f"{name}_acc", zeros, every, 0)
        known = self._descriptors()
        spans = [
            "" if made else tile_range(body, "rspan", "RBLOCK", subscript).text
            for made, subscript in zip(known, ("[None, :]", "[:, None]"), strict=True)
        ]
        offset = body.writer.names.fresh("roffset")
        body.writer.open(f"for {offset} in tl.range(0, {self.size}, RBLOCK, num_stages={stages}):")
        least = bounds(self.inner.size, body.setting.ranges).low
        body.load_depth = 0 if least is not None and least > 0 else body.writer.depth
        tiles = [
            self._described(side, made, offset) if made else self._tile(side, factor, f"{offset} + {at}")
            for side, (factor, made, at) in enumerate(
                zip(contraction_operands(self.coordinates), known, spans, strict=True)
            )
        ]
        operands = f"{tiles[0]}, {tiles[1]}, {total.text}{precision_of(self.found, self.inner.block)}"
        body.writer.line(f"{total.text} = tl.dot({operands})")
        body.load_depth = 0
        body.writer.close()
        body.scalars[name] = (converted(body, total, self.found.accumulator, dtype), dtype)

    def _descriptors(self) -> tuple[Descriptor | None, Descriptor | None]:
        """What describes the memory of both factors, ``None`` for one that is read by address."""
        asked = self.coordinates.tiles.descriptors
        if not asked:
            return None, None
        left, right = descriptors(self.coordinates)
        return left if "left" in asked else None, right if "right" in asked else None

    def _described(self, side: int, made: Descriptor, offset: str) -> str:
        """The name of a factor's tile, zero where memory ends, which its descriptor gives."""
        body, summed = self.body, self.indices[side]
        letter, block = self.dims[side][side]
        _, place = body.index.block_positions[self.coordinates.indices[letter]]
        at, blocks = {summed: offset}, {summed: "RBLOCK"}
        lines = made.slow, made.fast
        places = ", ".join(at.get(line.index, f"{place} * {block}") for line in lines)
        shape = ", ".join(blocks.get(line.index, block) for line in lines)
        name = body.writer.names.fresh(f"{made.buffer}_tiles")
        memory = f"{body.setting.pointers[made.buffer]}{f' + {made.start}' if made.start else ''}"
        sizes = f"[{made.slow.size}, {made.fast.size}], [{made.stride}, 1], [{shape}]"
        self.prologue.append(f"{name} = tl.make_tensor_descriptor({memory}, {sizes})")
        dtype = body.setting.parameters[made.buffer].dtype
        text = f"{name}.load([{places}])"
        text = casts.decode(text, dtype, body.form) if body.form == "interpreted" else text
        text = f"tl.trans({text})" if made.transposed else text
        every = frozenset(letter for letter, _ in self.dims[side])
        return body.writer.define(("left", "right")[side], text, every, body.writer.depth).text

    def _tile(self, side: int, factor: Expr, at: str) -> str:
        """The name of a factor's tile, zero where there is no point to sum; ``at`` are its summed points."""
        body, depth = self.body, self.body.writer.depth
        index = body.writer.define("rindex", at, frozenset("r"), depth)
        body.index.symbols[self.indices[side]] = index
        with body.over(self.dims[side]):
            if not (isinstance(self.inner.size, int) and self.inner.size % self.inner.block == 0):
                inside = body.writer.define("rmask", f"{index.text} < {self.size}", index.dims, depth)
                body.masks.tails["r"] = inside
            tile = operand_tile(body, ("left", "right")[side], factor)
            body.masks.tails.pop("r", None)
        return tile.text
