"""Stores: plain ones and atomic ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from litz_codegen_triton.emit import casts
from litz_codegen_triton.emit.body import Body
from litz_codegen_triton.emit.ops_table import Form
from litz_codegen_triton.emit.text import Value
from litz_ir.dtypes import DType, bf16, f32
from litz_ir.errors import CodegenError
from litz_ir.plan.kernel import Store
from litz_ir.scalar.build import cast
from litz_ir.scalar.expr import Expr, Load, Op

_ATOMICS: Mapping[str, str] = {"add": "tl.atomic_add", "min": "tl.atomic_min", "max": "tl.atomic_max"}
_ATOMIC_BITS = (32, 64)


@dataclass(frozen=True, slots=True)
class Write:
    """A store whose value and offset have been written; ``statement`` is absent where a scan stores."""

    buffer: str
    value: Value
    offset: Value
    statement: Store | None = None


def prepare(body: Body, statement: Store) -> Write:
    """Write what a store needs, without storing yet: a phase computes all its values first."""
    expr = statement.value
    if _rounds(expr) and statement.buffer not in body.setting.read:
        # Storing rounds, so nobody needs the rounded value in a register.
        assert isinstance(expr, Op)
        expr = cast(expr.args[0], f32)
    return Write(statement.buffer, body.value(expr), body.index.value(statement.offset), statement)


def store(body: Body, write: Write, every: frozenset[str]) -> None:
    """Write a store at the points of a phase that varies along ``every``. Raises ``CodegenError`` for a way of
    combining that the device cannot do atomically."""
    parameter = body.setting.parameters[write.buffer]
    mode = "set" if write.statement is None else write.statement.mode
    dims = write.offset.dims | write.value.dims if mode == "set" else every
    mask = body.masks.guarding(dims)
    stored = casts.encode(body.typed(write.value, parameter.dtype), parameter.dtype, body.form)
    pointer = f"{body.setting.pointers[write.buffer]} + {body.spread(write.offset, dims)}"
    more = "" if mask is None else f", mask={mask.text}"
    if mode == "set":
        body.writer.line(f"tl.store({pointer}, {stored}{more})")
    else:
        body.writer.line(
            f'{_atomic(mode, parameter.dtype, body.form)}({pointer}, {stored}{more}, sem="relaxed")'
        )
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


def _atomic(mode: str, dtype: DType, form: Form) -> str:
    fits = dtype.bits in _ATOMIC_BITS or (mode == "add" and dtype.is_float and dtype.bits == 16)
    if mode not in _ATOMICS or not fits:
        raise CodegenError(
            f"no atomic {mode} on {dtype}", hint="run the operation through its extern routine"
        )
    if dtype == bf16 and form == "interpreted":
        raise CodegenError(
            "Triton's interpreter has no atomics on bf16", hint="compile the kernel, or accumulate in f32"
        )
    return _ATOMICS[mode]
