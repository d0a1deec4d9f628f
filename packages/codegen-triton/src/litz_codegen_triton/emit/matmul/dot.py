"""The loop of a matmul kernel over K: tiles of both operands, multiplied by ``tl.dot``."""

from __future__ import annotations

from typing import get_args

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.loops.contraction import Contraction
from litz_codegen_triton.emit.loops.tiles import InnerLoop
from litz_codegen_triton.emit.matmul.descriptor import Descriptor, contraction_operands, descriptors
from litz_codegen_triton.emit.matmul.operand import operand_tile, precision_of, tile_range
from litz_codegen_triton.emit.reductions.combiners import converted
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.ops_table import triton_type
from litz_ir.plan import Accumulate, Operand
from litz_ir.scalar import Expr
from litz_ir.symbols import bounds

_NAMES = ("lhs", "rhs")
"""Names of the tiles of the left and the right operand."""


class Dot:
    """Writes the phase of a matmul.

    The output tile is rows by columns (``y``, ``x``), that of the left operand rows by summed points (``y``, ``r``),
    that of the right one summed points by columns (``r``, ``x``). An operand is chosen by its number, 0 or 1.
    ``prologue`` has the lines that make tensor descriptors; they precede the loop over tiles of a persistent kernel.
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
        y, x = body.tile.dims
        r = ("r", "RBLOCK")
        self.dims = ((y, r), (r, x))
        self.prologue: list[str] = []

    def write(self, statement: Accumulate, stages: int) -> None:
        """Write the loop and define the result; ``stages`` is ``num_stages`` of the loop."""
        body, ((name, dtype), *_) = self.body, statement.results
        every = frozenset(body.tile.letters)
        zero = "0.0" if self.found.accumulator.is_float else "0"
        zeros = f"tl.full({body.tile.text(every)}, {zero}, {triton_type(self.found.accumulator)})"
        total = body.writer.define(f"{name}_acc", zeros, every, 0)
        found = self._descriptors()
        spans = [
            "" if descriptor else tile_range(body, "rspan", "RBLOCK", subscript).text
            for descriptor, subscript in zip(found, ("[None, :]", "[:, None]"), strict=True)
        ]
        offset = body.writer.names.fresh("roffset")
        body.writer.open(f"for {offset} in tl.range(0, {self.size}, RBLOCK, num_stages={stages}):")
        least = bounds(self.inner.size, body.setting.ranges).low
        body.memory.load_depth = 0 if least is not None and least > 0 else body.writer.depth
        tiles = [
            self._load(number, descriptor, offset)
            if descriptor
            else self._tile(number, operand, f"{offset} + {span}")
            for number, (operand, descriptor, span) in enumerate(
                zip(contraction_operands(self.coordinates), found, spans, strict=True)
            )
        ]
        operands = f"{tiles[0]}, {tiles[1]}, {total.text}{precision_of(self.found, self.inner.block)}"
        body.writer.line(f"{total.text} = tl.dot({operands})")
        body.memory.load_depth = 0
        body.writer.close()
        body.scalars[name] = (converted(body, total, self.found.accumulator, dtype), dtype)

    def _descriptors(self) -> tuple[Descriptor | None, Descriptor | None]:
        """Return the descriptor of each operand that the schedule loads through one, ``None`` for the others."""
        chosen = self.coordinates.tiles.descriptors
        if not chosen:
            return None, None
        lhs, rhs = descriptors(self.coordinates)
        loads_lhs, loads_rhs = (operand in chosen for operand in get_args(Operand))
        return lhs if loads_lhs else None, rhs if loads_rhs else None

    def _load(self, number: int, descriptor: Descriptor, offset: str) -> str:
        """Load a tile of an operand through its descriptor, zero past the end of the matrix; return its name."""
        body, summed = self.body, self.indices[number]
        letter, block = self.dims[number][number]
        _, tile = body.index.block_positions[self.coordinates.indices[letter]]
        offsets, blocks = {summed: offset}, {summed: "RBLOCK"}
        dimensions = descriptor.slow, descriptor.fast
        starts = ", ".join(offsets.get(each.index, f"{tile} * {block}") for each in dimensions)
        shape = ", ".join(blocks.get(each.index, block) for each in dimensions)
        name = body.writer.names.fresh(f"{descriptor.buffer}_tiles")
        start = f" + {descriptor.start}" if descriptor.start else ""
        memory = f"{body.setting.pointers[descriptor.buffer]}{start}"
        sizes = f"[{descriptor.slow.size}, {descriptor.fast.size}], [{descriptor.stride}, 1], [{shape}]"
        self.prologue.append(f"{name} = tl.make_tensor_descriptor({memory}, {sizes})")
        dtype = body.setting.parameters[descriptor.buffer].dtype
        text = f"{name}.load([{starts}])"
        text = casts.decode(text, dtype, body.form) if body.form == "interpreted" else text
        text = f"tl.trans({text})" if descriptor.transposed else text
        every = frozenset(letter for letter, _ in self.dims[number])
        return body.writer.define(_NAMES[number], text, every, body.writer.depth).text

    def _tile(self, number: int, operand: Expr, summed: str) -> str:
        """Load or compute a tile of an operand at ``summed`` points, zero past the end of K; return its name."""
        body, depth = self.body, self.body.writer.depth
        index = body.writer.define("rindex", summed, frozenset("r"), depth)
        body.index.symbols[self.indices[number]] = index
        with body.tile.over(self.dims[number]):
            if not (isinstance(self.inner.size, int) and self.inner.size % self.inner.block == 0):
                inside = body.writer.define("rmask", f"{index.text} < {self.size}", index.dims, depth)
                body.masks.tails["r"] = inside
            tile = operand_tile(body, _NAMES[number], operand)
            body.masks.tails.pop("r", None)
        return tile.text
