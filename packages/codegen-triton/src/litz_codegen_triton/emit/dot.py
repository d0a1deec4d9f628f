"""A contraction tile by tile: both factors over tiles of their own, multiplied where the machine does that at once."""

from __future__ import annotations

from litz_codegen_triton.emit.body import Body
from litz_codegen_triton.emit.contraction import Contraction
from litz_codegen_triton.emit.coordinates import Coordinates
from litz_codegen_triton.emit.factor import factor_tile, precision, span
from litz_codegen_triton.emit.recipe import converted
from litz_codegen_triton.emit.tiles import Inner
from litz_ir.dtypes import f32
from litz_ir.plan.kernel import Accumulate
from litz_ir.scalar.expr import Expr, substitute_expr
from litz_ir.symbols.ranges import bounds
from litz_ir.symbols.term import symbol


class Dot:
    """Writes the phase of a contraction.

    The body's tiles are of rows by columns (``y``, ``x``); the left factor's are of rows by summed points (``y``,
    ``r``), the right one's of summed points by columns (``r``, ``x``).
    """

    def __init__(self, body: Body, coordinates: Coordinates, found: Contraction, inner: Inner) -> None:
        self.body = body
        self.found = found
        self.inner = inner
        self.size = body.index.unit(inner.size).text
        self.indices = coordinates.summed
        y, x = body.setting.dims
        r = ("r", "RBLOCK")
        self.dims = ((y, r), (r, x))

    def write(self, statement: Accumulate, stages: int) -> None:
        """Write the loop and define the result; ``stages`` tiles of factors are on their way at a time."""
        body, ((name, dtype), *_) = self.body, statement.results
        every = frozenset(letter for letter, _ in body.setting.dims)
        zeros = f"tl.full({body.shape(every)}, 0.0, tl.float32)"
        total = body.writer.define(f"{name}_acc", zeros, every, 0)
        spans = [span(body, "rspan", "RBLOCK", subscript).text for subscript in ("[None, :]", "[:, None]")]
        offset = body.writer.names.fresh("roffset")
        body.writer.open(f"for {offset} in tl.range(0, {self.size}, RBLOCK, num_stages={stages}):")
        least = bounds(self.inner.size, body.setting.ranges).low
        body.load_depth = 0 if least is not None and least > 0 else body.writer.depth
        left, right = self.found.factors(statement)
        right = substitute_expr(right, {self.indices[0]: symbol(self.indices[1])})
        tiles = [self._tile(k, factor, f"{offset} + {spans[k]}") for k, factor in enumerate((left, right))]
        operands = f"{tiles[0]}, {tiles[1]}, {total.text}{precision(self.found.dtype, tf32=self.found.tf32)}"
        body.writer.line(f"{total.text} = tl.dot({operands})")
        body.load_depth = 0
        body.writer.close()
        body.scalars[name] = (converted(body, total, f32, dtype), dtype)

    def _tile(self, side: int, factor: Expr, at: str) -> str:
        """The name of a factor's tile, zero where there is no point to sum; ``at`` are its summed points."""
        body, depth = self.body, self.body.writer.depth
        index = body.writer.define("rindex", at, frozenset("r"), depth)
        body.index.symbols[self.indices[side]] = index
        with body.over(self.dims[side]):
            if not (isinstance(self.inner.size, int) and self.inner.size % self.inner.block == 0):
                inside = body.writer.define("rmask", f"{index.text} < {self.size}", index.dims, depth)
                body.masks.tails["r"] = inside
            tile = factor_tile(body, ("left", "right")[side], factor)
            body.masks.tails.pop("r", None)
        return tile.text
