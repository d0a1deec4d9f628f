"""Low-precision floats that are only moved, as integers of the same width.

Arithmetic on them converts to ``float`` and back. For a move this would cost two conversions and make a signalling
NaN quiet, which a program that views the memory as integers, ``x.view(torch.int16)``, could observe.
"""

from __future__ import annotations

from dataclasses import replace

from litz_ir.dtypes import DType, u8, u16
from litz_ir.plan import Accumulate, Kernel, Phase, ScanStore, Statement, Store
from litz_ir.scalar import Checked, Expr, Load, Masked, Op, cast, const, op, transform

_SIGN = 0x8000
"""The sign bit of a 16-bit float."""


def with_moved_bits(kernel: Kernel) -> Kernel:
    """Return the kernel with integers in place of low-precision floats that are only moved.

    A float is only moved where it is loaded to be stored or to be viewed as an integer. Such loads and stores have
    another dtype than their buffers.
    """
    memo: dict[Expr, Expr] = {}

    def bitcasts(body: Expr) -> Expr:
        return transform(body, _as_integer, memo=memo)

    def changed(statement: Statement) -> Statement:
        match statement:
            case Store():
                value = bitcasts(statement.value)
                if statement.mode == "set" and value.dtype.is_low_precision and _is_moved(value):
                    value = _bits(value)
                return replace(statement, value=value)
            case Accumulate() | ScanStore():
                return replace(statement, values=tuple(map(bitcasts, statement.values)))

    phases = tuple(Phase(phase.axes, tuple(map(changed, phase.statements))) for phase in kernel.phases)
    return replace(kernel, phases=phases)


def _as_integer(node: Expr) -> Expr:
    """Return a bitcast of a moved float as an operation on its bits; any other node as it is."""
    if (
        isinstance(node, Op)
        and node.name == "bitcast"
        and node.args[0].dtype.is_low_precision
        and _is_moved(node.args[0])
    ):
        return _as(_bits(node.args[0]), node.dtype)
    return node


def _is_moved(node: Expr) -> bool:
    """Return True for a loaded value or the bitcast of an integer, selected by whatever conditions."""
    match node:
        case Load():
            return True
        case Masked():
            return _is_moved(node.body) or _is_moved(node.other)
        case Checked():
            return _is_moved(node.body)
        case Op(name="bitcast"):
            return node.args[0].dtype.is_integer or _is_moved(node.args[0])
        case Op(name="where"):
            return any(map(_is_moved, node.args[1:]))
    signed = _sign_changed(node)
    return signed is not None and _is_moved(signed.args[0].children[0])


def _sign_changed(node: Expr) -> Op | None:
    """Return the negation or absolute value that ``node`` is of a 16-bit float, else None.

    It needs no conversion to ``float``. Some 8-bit floats have NaN where others have negative zero, so they are left
    out.
    """
    if not isinstance(node, Op) or node.name != "cast" or node.dtype.bits != u16.bits:
        return None
    inner = node.args[0]
    if not isinstance(inner, Op) or inner.name not in ("neg", "abs"):
        return None
    widened = inner.args[0]
    same = isinstance(widened, Op) and widened.name == "cast" and widened.args[0].dtype == node.dtype
    return inner if same else None


def _bits(node: Expr) -> Expr:
    """Return the bits of a low-precision float, as an unsigned integer."""
    unsigned = u16 if node.dtype.bits == u16.bits else u8
    match node:
        case Load():
            return Load(node.buffer, node.index, unsigned)
        case Masked():
            return Masked(node.cond, _bits(node.body), _bits(node.other))
        case Checked():
            return Checked(node.cond, _bits(node.body), node.fault)
        case Op(name="bitcast") if node.args[0].dtype.is_integer:
            return _as(node.args[0], unsigned)
        case Op(name="bitcast") if node.args[0].dtype.is_low_precision:
            return _bits(node.args[0])
        case Op(name="where"):
            return op("where", node.args[0], *map(_bits, node.args[1:]))
    signed = _sign_changed(node)
    if signed is not None and _is_moved(node):
        bits = _bits(signed.args[0].children[0])
        negated = op("bit_xor", bits, const(_SIGN, u16))
        return negated if signed.name == "neg" else op("bit_and", bits, const(_SIGN - 1, u16))
    return op("bitcast", node, dtype=unsigned)


def _as(bits: Expr, dtype: DType) -> Expr:
    """Return an integer as another dtype of its width."""
    return cast(bits, dtype) if dtype.is_integer else op("bitcast", bits, dtype=dtype)
