"""Factors as they are multiplied: tiles of two dimensions, zero where there is no point to sum."""

from __future__ import annotations

from litz_codegen_triton.emit import casts
from litz_codegen_triton.emit.body import TileEmitter
from litz_codegen_triton.emit.contraction import Contraction
from litz_codegen_triton.emit.text import EmittedValue
from litz_ir.contraction import F8
from litz_ir.dtypes import DType, f32, i8
from litz_ir.scalar import Const, Expr, Load, Masked, Op

SUMMED = "er"
"""The dimensions along which points are summed: those of folds, and of the phase."""


FP8_ACCUMULATION_POINTS = 128
"""The summed points after which sums of products of 8-bit floats are brought to f32, as libraries do where they are not
asked to be fast."""


def precision(dtype: DType) -> str:
    """What a product of tiles is told besides its operands, so that it is exact."""
    return ', input_precision="ieee"' if dtype == f32 else ""


def precision_of(found: Contraction, block: int) -> str:
    """The same for a contraction, of ``block`` points at a time: how precise its operation asks to be."""
    if found.dtype in F8:
        most = 0 if found.multiply == "mul_f8_fast" else min(FP8_ACCUMULATION_POINTS, block)
        return f", max_num_imprecise_acc={most}" if most else ""
    if found.dtype == i8:
        return ", out_dtype=tl.int32"
    return ', input_precision="tf32"' if found.multiply == "mul_tf32" else precision(found.dtype)


def tile_range(body: TileEmitter, base: str, block: str, subscript: str) -> EmittedValue:
    """The points of a tile, from 0, along one of its dimensions."""
    wide = "" if body.index.narrow else ".to(tl.int64)"
    return body.writer.define(base, f"tl.arange(0, {block}){subscript}{wide}", frozenset(base[0]), 0)


def operand_tile(body: TileEmitter, base: str, factor: Expr) -> EmittedValue:
    """The tile of a factor over the dimensions of the body's setting, under a name; narrow floats are as they are in
    memory."""
    every = frozenset(letter for letter, _ in body.setting.dims)
    value = _elements(body, factor)
    text = value.text
    if value.dims != every:
        text = f"tl.broadcast_to({text}, {body.shape(every)})"
    return body.writer.define(base, text, every, max(value.depth, body.load_depth))


def _elements(body: TileEmitter, factor: Expr) -> EmittedValue:
    """The elements of a factor as they are multiplied. The interpreter multiplies what narrow floats stand for, which
    is the same."""
    tails = [body.masks.tails[letter] for letter in SUMMED if letter in body.masks.tails]
    as_stored = body.form == "compiled" and factor.dtype.is_low_precision
    if as_stored or factor.dtype in (f32, i8):
        found = _in_memory(body, factor, as_stored)
        if found is not None and all(tail.dims <= found.dims for tail in tails):
            return found
    value = _registers(body, factor, as_stored)
    text, dims, depth = body.typed(value, factor.dtype), value.dims, value.depth
    inside = body.masks.conjunction(tails)
    if inside is not None:
        text, dims = f"tl.where({inside.text}, {text}, {_zero(factor.dtype)})", dims | inside.dims
        depth = max(depth, inside.depth)
    return EmittedValue(
        casts.encode_operand(text, factor.dtype, body.form) if as_stored else text, dims, depth
    )


def _in_memory(body: TileEmitter, factor: Expr, as_stored: bool) -> EmittedValue | None:
    """A factor that is read and nothing else, or put in the place of zero; ``None`` for any other."""
    match factor:
        case Load():
            taken_for = casts.multiplied_type(factor.dtype) if as_stored else ""
            return body.stored_element(factor, _zero(factor.dtype), taken_for)
        case Masked(other=Const() as other) if other.value == 0:
            with body.under(factor.cond, body.value(factor.cond)):
                return _in_memory(body, factor.body, as_stored)
    return None


def _zero(dtype: DType) -> str:
    return "0.0" if dtype.is_float else "0"


def _registers(body: TileEmitter, factor: Expr, as_stored: bool) -> EmittedValue:
    """A factor in registers; one that is rounded when it is stored need not be rounded before."""
    if as_stored and isinstance(factor, Op) and factor.name == "cast" and factor.args[0].dtype == f32:
        return body.before_rounding(factor)
    return body.value(factor)
