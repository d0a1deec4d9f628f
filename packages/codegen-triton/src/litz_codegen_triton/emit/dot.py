"""A contraction tile by tile: both factors over tiles of their own, multiplied where the machine does that at once."""

from __future__ import annotations

from litz_codegen_triton.emit import casts
from litz_codegen_triton.emit.body import Body
from litz_codegen_triton.emit.contraction import Contraction
from litz_codegen_triton.emit.coordinates import Coordinates
from litz_codegen_triton.emit.recipe import converted
from litz_codegen_triton.emit.text import Value
from litz_codegen_triton.emit.tiles import Inner
from litz_ir.dtypes import f32
from litz_ir.plan.kernel import Accumulate
from litz_ir.scalar.expr import Expr, Load, substitute_expr
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
        spans = [self._span("[None, :]"), self._span("[:, None]")]
        offset = body.writer.names.fresh("roffset")
        body.writer.open(f"for {offset} in tl.range(0, {self.size}, RBLOCK, num_stages={stages}):")
        least = bounds(self.inner.size, body.setting.ranges).low
        body.load_depth = 0 if least is not None and least > 0 else body.writer.depth
        left, right = self.found.factors(statement)
        right = substitute_expr(right, {self.indices[0]: symbol(self.indices[1])})
        tiles = [self._tile(k, factor, f"{offset} + {spans[k]}") for k, factor in enumerate((left, right))]
        precision = ', input_precision="ieee"' if self.found.dtype == f32 else ""
        body.writer.line(f"{total.text} = tl.dot({tiles[0]}, {tiles[1]}, {total.text}{precision})")
        body.load_depth = 0
        body.writer.close()
        body.scalars[name] = (converted(body, total, f32, dtype), dtype)

    def _span(self, subscript: str) -> str:
        """The summed points of a tile, from 0, along one of its dimensions."""
        wide = "" if self.body.index.narrow else ".to(tl.int64)"
        text = f"tl.arange(0, RBLOCK){subscript}{wide}"
        return self.body.writer.define("rspan", text, frozenset("r"), 0).text

    def _tile(self, side: int, factor: Expr, at: str) -> str:
        """The name of a factor's tile, zero where there is no point to sum; ``at`` are its summed points."""
        body, depth = self.body, self.body.writer.depth
        every = frozenset(letter for letter, _ in self.dims[side])
        index = body.writer.define("rindex", at, frozenset("r"), depth)
        body.index.symbols[self.indices[side]] = index
        with body.over(self.dims[side]):
            if not (isinstance(self.inner.size, int) and self.inner.size % self.inner.block == 0):
                inside = body.writer.define("rmask", f"{index.text} < {self.size}", index.dims, depth)
                body.masks.tails["r"] = inside
            value = self._value(factor)
            text = value.text
            if value.dims != every:
                text = f"tl.broadcast_to({text}, {body.shape(every)})"
            body.masks.tails.pop("r", None)
        return body.writer.define(("left", "right")[side], text, every, depth).text

    def _value(self, factor: Expr) -> Value:
        """The elements of a factor as they are multiplied: narrow floats as they are in memory. The interpreter
        multiplies what they stand for, which is the same."""
        body, tail = self.body, self.body.masks.tails.get("r")
        as_stored = body.form == "compiled" and factor.dtype.is_low_precision
        if isinstance(factor, Load) and (as_stored or factor.dtype == f32):
            found = body.stored_element(factor, "0.0")
            if tail is None or "r" in found.dims:
                return found
        value = body.value(factor)
        text, dims = body.typed(value, factor.dtype), value.dims
        if tail is not None:
            text, dims = f"tl.where({tail.text}, {text}, 0.0)", dims | tail.dims
        return Value(casts.encode(text, factor.dtype, body.form) if as_stored else text, dims)
