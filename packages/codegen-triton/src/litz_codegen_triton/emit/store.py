"""Stores: plain ones and atomic ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from litz_codegen_triton.emit import casts
from litz_codegen_triton.emit.atomics import native, swapping
from litz_codegen_triton.emit.body import TileEmitter
from litz_codegen_triton.emit.text import EmittedValue
from litz_codegen_triton.emit.vector_accesses import MemoryAccess
from litz_ir.dtypes import DType, f32
from litz_ir.plan import Store
from litz_ir.scalar import Expr, Load, Op, cast
from litz_ir.symbols import Size


@dataclass(frozen=True, slots=True)
class PendingStore:
    """A store whose value and offset have been written, the latter for ``term``; ``statement`` is absent where a scan
    stores."""

    buffer: str
    value: EmittedValue
    offset: EmittedValue
    term: Size
    statement: Store | None = None


def prepare(body: TileEmitter, statement: Store) -> PendingStore:
    """Write what a store needs, without storing yet: a phase computes all its values first."""
    value, offset = _value(body, statement), body.index.value(statement.offset)
    return PendingStore(statement.buffer, value, offset, statement.offset, statement)


def _value(body: TileEmitter, statement: Store) -> EmittedValue:
    """What is stored, not yet rounded where storing rounds and nobody needs the rounded value in a register."""
    expr = statement.value
    if not _rounds(expr) or statement.buffer in body.setting.read:
        return body.value(expr)
    assert isinstance(expr, Op)
    source = expr.args[0]
    return body.before_rounding(expr) if source.dtype == f32 else body.value(cast(source, f32))


def store(body: TileEmitter, write: PendingStore, every: frozenset[str]) -> None:
    """Write a store at the points of a phase that varies along ``every``."""
    parameter = body.setting.parameters[write.buffer]
    mode = "set" if write.statement is None else write.statement.mode
    dims = write.offset.dims | write.value.dims if mode == "set" else every
    if mode == "set":
        mask = body.masks.guarding(dims)
        stored = casts.encode(body.typed(write.value, parameter.dtype), parameter.dtype, body.form)
        pointer = f"{body.setting.pointers[write.buffer]} + {body.spread(write.offset, dims)}"
        more = "" if mask is None else f", mask={mask.text}"
        body.writer.line(f"tl.store({pointer}, {stored}{more})")
        body.accesses.append(MemoryAccess("store", write.buffer, write.term, dims))
    else:
        _combine(body, write, mode, parameter.dtype, dims)
    body.stored.add(write.buffer)
    if write.buffer not in body.setting.read:
        return
    body.forget(write.buffer)
    if mode == "set" and write.statement is not None and write.statement.value.dtype == parameter.dtype:
        # What is read back at the same place need not travel through memory.
        depth = max(write.value.depth, write.offset.depth)
        forwarded = replace(write.value, depth=depth)
        body.writer.remember(Load(write.buffer, (write.statement.offset,), parameter.dtype), forwarded)


def _rounds(expr: Expr) -> bool:
    """True for a conversion to a narrow float, which goes by way of ``f32``."""
    return isinstance(expr, Op) and expr.name == "cast" and expr.dtype.is_low_precision


def _combine(body: TileEmitter, write: PendingStore, mode: str, dtype: DType, dims: frozenset[str]) -> None:
    """Combine with what is in memory, which other programs may do at the same time."""
    pointer, mask = body.setting.pointers[write.buffer], body.masks.guarding(dims)
    value = body.typed(write.value, dtype)
    function = native(mode, dtype, body.form)
    if function is not None:
        stored = casts.encode(value, dtype, body.form)
        more = "" if mask is None else f", mask={mask.text}"
        place = f"{pointer} + {body.spread(write.offset, dims)}"
        body.writer.line(f'{function}({place}, {stored}{more}, sem="relaxed")')
        return
    name, source = swapping(mode, dtype, body.form)
    body.functions[name] = source
    shape = body.shape(dims) if body.setting.dims else "[1]"
    place = f"{body.spread(write.offset, dims)} + tl.zeros({shape}, {body.index.type})"
    which = f"tl.full({shape}, 1, tl.int1)"
    if mask is not None:
        which = f"{mask.text} & {which}"
    body.writer.line(f"{name}({pointer}, {place}, {value}, {which})")
