"""Sums inside a body, as loops of their own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol

from litz_codegen_cpp.emit.bodies.index import IndexText
from litz_codegen_cpp.emit.source.context import Context
from litz_codegen_cpp.emit.source.scopes import CppValue
from litz_codegen_cpp.emit.source.spelling import register_type, vector_type
from litz_ir.scalar import Expr, NestedReduction
from litz_ir.symbols import Size, extent


class Bodies(Protocol):
    """An emitter of expressions, as a sum needs it."""

    context: Context
    """The state of the emission."""

    def value(self, root: Expr) -> CppValue:
        """Return the value of an expression at the innermost scope."""

    def scalar(self, x: Size) -> IndexText:
        """Return the text of an index term at the innermost scope."""

    def may_vary(self, expr: Expr) -> bool:
        """Return True when some part of the expression may differ between lanes."""


def nested_sum(body: Bodies, expr: NestedReduction) -> CppValue:
    """Write the loops of a nested reduction at the innermost scope, and return its value."""
    context, scopes = body.context, body.context.scopes
    level, varying = scopes.top, body.may_vary(expr)
    kind = vector_type(expr.dtype) if varying else register_type(expr.dtype)
    names = tuple(context.names.fresh("nested") for _ in range(context.registers if varying else 1))
    for name in names:
        scopes.line(f"{kind} {name} = {{}};")
    with ExitStack() as stack:
        for axis, size in expr.axes:
            own, stop = context.names.fresh(axis), body.scalar(size).bracketed()
            context.ranges[axis] = extent(size)
            opening = f"for (int64_t {own} = 0; {own} < {stop}; ++{own}) {{"
            stack.enter_context(scopes.block(opening, conditional=True)).axes[axis] = own
        value = body.value(expr.body)
        if varying:
            value = context.spread(value)
        for number, name in enumerate(names):
            scopes.line(f"{name} = {name} + {value.register(number)};")
    return CppValue(names, expr.dtype, level, varying, value.reads)
