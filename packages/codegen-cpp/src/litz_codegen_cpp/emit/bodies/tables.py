"""Functions of half a byte, such as the weight that it stands for, as tables of 16 values made outside of loops."""

from __future__ import annotations

from typing import Protocol

from litz_codegen_cpp.emit.source.context import Context
from litz_codegen_cpp.emit.source.scopes import CppValue
from litz_ir.dtypes import f32, i32, u8
from litz_ir.scalar import Const, Expr, Load, Op, Scalar, transform
from litz_ir.scalar.build import cast, const, op

_ENTRIES = 16
"""The values of half a byte, as many as the lanes of the registers for which there are tables."""

_ENTRY = Scalar("entry of a table", u8)
"""The half of a byte in a table's definition."""

_FEWEST = 2
"""The fewest operations that a table replaces."""


class Bodies(Protocol):
    """Emitters of expressions."""

    context: Context
    headers: set[str]

    def value(self, root: Expr) -> CppValue:
        """Return the value of an expression at the innermost scope."""

    def may_vary(self, expr: Expr) -> bool:
        """Return True when some part of the expression may differ between lanes."""


def looked_up(body: Bodies, root: Expr) -> CppValue | None:
    """Return a value of f32 from a table; ``None`` where it is no function of half a byte alone in its loop."""
    context = body.context
    if root.dtype != f32 or context.vector is None or context.lanes != _ENTRIES:
        return None
    half = _half_of(body, root)
    if half is None:
        return None
    load, shift = half
    body.headers.add("tables")
    context.scopes.remember(("scalar", _ENTRY.name), CppValue(("iota<uint8_t>(0)",), u8, 0, True))
    table = body.value(transform(root, lambda node: _ENTRY if _half(node) else node))
    byte = cast(load, i32)
    at = body.value(op("shift_right", byte, const(shift, i32)) if shift else byte)
    texts = tuple(
        f"look_up({table.registers[0]}, {at.register(number)})" for number in range(context.registers)
    )
    level = max(table.scope_level, at.scope_level)
    value = context.define("entry", texts, f32, level, varying=True, reads=table.reads | at.reads)
    return context.scopes.remember(root, value)


def _half_of(body: Bodies, root: Expr) -> tuple[Load, int] | None:
    """Return the byte on which alone an expression of several operations depends in its loop, and the shift of the half
    that it reads."""
    found: set[tuple[Load, int]] = set()
    others: list[Expr] = []
    stack, seen, operations = [root], {root}, 0
    while stack:
        node = stack.pop()
        half = _half(node)
        if half is not None:
            found.add(half)
        elif isinstance(node, Op):
            operations += 1
            new = [child for child in node.children if child not in seen]
            seen.update(new)
            stack.extend(new)
        else:
            others.append(node)
    if len(found) != 1 or operations < _FEWEST or any(body.may_vary(node) for node in others):
        return None
    (half,) = found
    return half if body.may_vary(half[0]) else None


def _half(node: Expr) -> tuple[Load, int] | None:
    """Return the byte of which an expression is one half, and by how many bits it is shifted."""
    match node:
        case Op(
            name="bit_and",
            args=(Load(dtype=dtype) as load, Const(value=15)) | (Const(value=15), Load(dtype=dtype) as load),
        ):
            return (load, 0) if dtype == u8 else None
        case Op(name="shift_right", args=(Load(dtype=dtype) as load, Const(value=4))):
            return (load, 4) if dtype == u8 else None
    return None
