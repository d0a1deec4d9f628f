"""Stores of tiles, plain and atomic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from litz_codegen_triton.emit.bodies.atomics import native, swapping
from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.tile_shape import typed
from litz_codegen_triton.emit.indexing.vector_accesses import MemoryAccess
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import DType, f32
from litz_ir.plan import Store
from litz_ir.scalar import Expr, Load, Op, cast
from litz_ir.symbols import Size


@dataclass(frozen=True, slots=True)
class PendingStore:
    """A store whose value and offset are written, but not the store itself."""

    buffer: str
    """Buffer to store to."""

    value: EmittedValue
    """Value to store, not encoded yet."""

    offset: EmittedValue
    """Offset in elements."""

    term: Size
    """Index term of ``offset``."""

    statement: Store | None = None
    """Statement that stores; ``None`` for a scan."""


def prepare(body: TileEmitter, statement: Store) -> PendingStore:
    """Write the value and offset of a store; a phase computes all of its values before it stores."""
    value, offset = _value(body, statement), body.index.value(statement.offset)
    return PendingStore(statement.buffer, value, offset, statement.offset, statement)


def _value(body: TileEmitter, statement: Store) -> EmittedValue:
    """Write the value of a store; a final rounding is left to the store unless the kernel reads the buffer too."""
    expr = statement.value
    if not _rounds(expr) or statement.buffer in body.setting.read:
        return body.value(expr)
    assert isinstance(expr, Op)
    source = expr.args[0]
    return body.operations.before_rounding(expr) if source.dtype == f32 else body.value(cast(source, f32))


def store(body: TileEmitter, write: PendingStore, all_dims: frozenset[str]) -> None:
    """Write a store in a phase whose tile has the dimensions ``all_dims``."""
    parameter = body.setting.parameters[write.buffer]
    mode = "set" if write.statement is None else write.statement.mode
    dims = write.offset.dims | write.value.dims if mode == "set" else all_dims
    if mode == "set":
        mask = body.masks.access_mask(dims)
        stored = casts.encode(typed(write.value, parameter.dtype), parameter.dtype, body.form)
        pointer = f"{body.setting.pointers[write.buffer]} + {body.tile.spread(write.offset, dims)}"
        more = "" if mask is None else f", mask={mask.text}"
        body.writer.line(f"tl.store({pointer}, {stored}{more})")
        body.memory.accesses.append(MemoryAccess("store", write.buffer, write.term, dims))
    else:
        _combine(body, write, mode, parameter.dtype, dims)
    body.memory.stored.add(write.buffer)
    if write.buffer not in body.setting.read:
        return
    body.cache.forget(write.buffer)
    if mode == "set" and write.statement is not None and write.statement.value.dtype == parameter.dtype:
        # A later load at the same offset takes the value from a register.
        depth = max(write.value.depth, write.offset.depth)
        forwarded = replace(write.value, depth=depth)
        body.writer.remember(Load(write.buffer, (write.statement.offset,), parameter.dtype), forwarded)


def _rounds(expr: Expr) -> bool:
    """True for a conversion to a low-precision float, whose values are computed in ``f32``."""
    return isinstance(expr, Op) and expr.name == "cast" and expr.dtype.is_low_precision


def _combine(body: TileEmitter, write: PendingStore, mode: str, dtype: DType, dims: frozenset[str]) -> None:
    """Write an atomic update of memory."""
    pointer, mask = body.setting.pointers[write.buffer], body.masks.access_mask(dims)
    value = typed(write.value, dtype)
    function = native(mode, dtype, body.form)
    if function is not None:
        stored = casts.encode(value, dtype, body.form)
        more = "" if mask is None else f", mask={mask.text}"
        address = f"{pointer} + {body.tile.spread(write.offset, dims)}"
        body.writer.line(f'{function}({address}, {stored}{more}, sem="relaxed")')
        return
    name, source = swapping(mode, dtype, body.form)
    body.functions[name] = source
    shape = body.tile.text(dims) if body.tile.dims else "[1]"
    offset = f"{body.tile.spread(write.offset, dims)} + tl.zeros({shape}, {body.index.type})"
    active = f"tl.full({shape}, 1, tl.int1)"
    if mask is not None:
        active = f"{mask.text} & {active}"
    body.writer.line(f"{name}({pointer}, {offset}, {value}, {active})")
