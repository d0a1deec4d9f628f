"""Factors as they are multiplied: tiles of two dimensions, zero where there is no point to sum."""

from __future__ import annotations

from litz_codegen_triton.emit import casts
from litz_codegen_triton.emit.body import Body
from litz_codegen_triton.emit.text import Value
from litz_ir.dtypes import DType, f32
from litz_ir.scalar.expr import Expr, Load, Op

SUMMED = "er"
"""The dimensions along which points are summed: those of folds, and of the phase."""


def precision(dtype: DType, *, tf32: bool = False) -> str:
    """What a product of tiles is told besides its operands: ``tf32`` where factors of ``f32`` may be rounded."""
    return f', input_precision="{"tf32" if tf32 else "ieee"}"' if dtype == f32 else ""


def span(body: Body, base: str, block: str, subscript: str) -> Value:
    """The points of a tile, from 0, along one of its dimensions."""
    wide = "" if body.index.narrow else ".to(tl.int64)"
    return body.writer.define(base, f"tl.arange(0, {block}){subscript}{wide}", frozenset(base[0]), 0)


def factor_tile(body: Body, base: str, factor: Expr) -> Value:
    """The tile of a factor over the dimensions of the body's setting, under a name; narrow floats are as they are in
    memory."""
    every = frozenset(letter for letter, _ in body.setting.dims)
    value = _elements(body, factor)
    text = value.text
    if value.dims != every:
        text = f"tl.broadcast_to({text}, {body.shape(every)})"
    return body.writer.define(base, text, every, max(value.depth, body.load_depth))


def _elements(body: Body, factor: Expr) -> Value:
    """The elements of a factor as they are multiplied. The interpreter multiplies what narrow floats stand for, which
    is the same."""
    tails = [body.masks.tails[letter] for letter in SUMMED if letter in body.masks.tails]
    as_stored = body.form == "compiled" and factor.dtype.is_low_precision
    if isinstance(factor, Load) and (as_stored or factor.dtype == f32):
        found = body.stored_element(factor, "0.0")
        if all(tail.dims <= found.dims for tail in tails):
            return found
    value = _registers(body, factor, as_stored)
    text, dims, depth = body.typed(value, factor.dtype), value.dims, value.depth
    inside = body.masks.conjunction(tails)
    if inside is not None:
        text, dims = f"tl.where({inside.text}, {text}, 0.0)", dims | inside.dims
        depth = max(depth, inside.depth)
    return Value(casts.encode(text, factor.dtype, body.form) if as_stored else text, dims, depth)


def _registers(body: Body, factor: Expr, as_stored: bool) -> Value:
    """A factor in registers; one that is rounded when it is stored need not be rounded before."""
    if as_stored and isinstance(factor, Op) and factor.name == "cast" and factor.args[0].dtype == f32:
        return body.before_rounding(factor)
    return body.value(factor)
