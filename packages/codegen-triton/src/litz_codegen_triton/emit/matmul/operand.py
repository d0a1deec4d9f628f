"""Operands of ``tl.dot``: tiles of two dimensions, with zeros at summed points that do not exist."""

from __future__ import annotations

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.tile_shape import typed
from litz_codegen_triton.emit.loops.contraction import Contraction
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.contraction import F8
from litz_ir.dtypes import DType, f32, i8
from litz_ir.scalar import Const, Expr, Load, Masked, Op, loads

_SUMMED = "er"
"""Dimensions that are summed over: ``e`` of nested reductions and ``r`` of the phase."""


_FP8_ACCUMULATION_POINTS = 128
"""Summed points after which the tensor cores' accumulators of 8-bit floats are added to ``f32`` ones, as cuBLAS does
without fast accumulation."""


def _precision(dtype: DType) -> str:
    """Return the arguments of ``tl.dot`` that make it exact for a dtype."""
    return ', input_precision="ieee"' if dtype == f32 else ""


def precision_of(found: Contraction, block: int) -> str:
    """Return the arguments of ``tl.dot`` for a contraction's precision, with a tile of ``block`` points along K."""
    if found.dtype in F8:
        limit = 0 if found.multiply == "mul_f8_fast" else min(_FP8_ACCUMULATION_POINTS, block)
        return f", max_num_imprecise_acc={limit}" if limit else ""
    if found.dtype == i8:
        return ", out_dtype=tl.int32"
    return ', input_precision="tf32"' if found.multiply == "mul_tf32" else _precision(found.dtype)


def tile_range(body: TileEmitter, base: str, block: str, subscript: str) -> EmittedValue:
    """Define the indices of a tile, from 0, along the dimension that is the first letter of ``base``."""
    cast = "" if body.index.narrow else ".to(tl.int64)"
    return body.writer.define(base, f"tl.arange(0, {block}){subscript}{cast}", frozenset(base[0]), 0)


def operand_tile(body: TileEmitter, base: str, operand: Expr) -> EmittedValue:
    """Define the tile of an operand over all dimensions of the body, in the dtype of its memory."""
    all_dims = frozenset(body.tile.letters)
    value = _elements(body, operand)
    text = value.text
    if value.dims != all_dims:
        text = body.tile.broadcast(text, all_dims)
    return body.writer.define(base, text, all_dims, max(value.depth, body.memory.load_depth))


def _elements(body: TileEmitter, operand: Expr) -> EmittedValue:
    """Write the elements of an operand in the dtype that ``tl.dot`` takes.

    The compiled form multiplies low-precision floats as they are stored, the interpreted form their values in ``f32``,
    with equal results.
    """
    tails = [body.masks.tails[letter] for letter in _SUMMED if letter in body.masks.tails]
    as_stored = body.form == "compiled" and operand.dtype.is_low_precision
    if as_stored or operand.dtype in (f32, i8):
        loaded = _masked_load(body, operand, as_stored)
        if loaded is not None and all(tail.dims <= loaded.dims for tail in tails):
            return loaded
    value = _computed(body, operand, as_stored)
    text, dims, depth = typed(value, operand.dtype), value.dims, value.depth
    tail = body.masks.conjunction(tails)
    if tail is not None:
        text, dims = f"tl.where({tail.text}, {text}, {_zero(operand.dtype)})", dims | tail.dims
        depth = max(depth, tail.depth)
    return EmittedValue(
        casts.encode_operand(text, operand.dtype, body.form) if as_stored else text, dims, depth
    )


def _masked_load(body: TileEmitter, operand: Expr, as_stored: bool) -> EmittedValue | None:
    """Write an operand that is a load, masked or not, as a load with zeros elsewhere; ``None`` for other operands."""
    match operand:
        case Load():
            operand_type = casts.multiplied_type(operand.dtype) if as_stored else ""
            return body.memory.stored_element(operand, _zero(operand.dtype), operand_type)
        case Masked(other=Const() as other) if other.value == 0:
            with body.memory.under(operand.cond, body.value(operand.cond)):
                if all(body.memory.is_masked_by(operand.cond, load) for load in loads(operand.body)):
                    return _masked_load(body, operand.body, as_stored)
    return None


def _zero(dtype: DType) -> str:
    return "0.0" if dtype.is_float else "0"


def _computed(body: TileEmitter, operand: Expr, as_stored: bool) -> EmittedValue:
    """Write an operand that is computed in registers, without a rounding that its encoding does anyway."""
    if as_stored and isinstance(operand, Op) and operand.name == "cast" and operand.args[0].dtype == f32:
        return body.operations.before_rounding(operand)
    return body.value(operand)
