"""Sums of products of bf16 numbers, which CPUs multiply in pairs: one instruction for twice the lanes of a float."""

from __future__ import annotations

from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.source.scopes import CppValue
from litz_ir.dtypes import bf16, f32
from litz_ir.scalar import Expr, Load, Op
from litz_ir.symbols import add

Factors = tuple[Expr, Expr]


def multiplies_bf16(products: tuple[Factors, ...]) -> bool:
    """Return True for one or two products of bf16 numbers."""
    return 1 <= len(products) <= 2 and all(_narrow(x) is not None for factors in products for x in factors)


def are_adjacent(products: tuple[Factors, ...]) -> bool:
    """Return True for two products that have factors next to one another in memory; their sums need no more registers
    than one product."""
    if len(products) < 2:
        return False
    return any(_adjacent(first, second) is not None for first, second in zip(*products, strict=True))


class PairEmitter:
    """Emits vectors of pairs of bf16 numbers."""

    def __init__(self, body: ExpressionEmitter) -> None:
        self.body = body

    def add(self, sums: list[str], products: tuple[Factors, ...]) -> None:
        """Add the products of all registers to ``sums``, one for each register or, unless the products are adjacent,
        for each two of them."""
        context = self.body.context
        self.body.headers.add("bf16_pairs")
        if are_adjacent(products):
            (x0, y0), (x1, y1) = products
            for number in range(context.registers):
                x, y = self._pairs((x0, x1), number), self._pairs((y0, y1), number)
                context.scopes.line(f"add_products({sums[number]}, {x}, {y});")
            return
        for number in range(0, context.registers, 2):
            for left, right in products:
                x, y = self._pairs(left, number), self._pairs(right, number)
                context.scopes.line(f"add_products({sums[number // 2]}, {x}, {y});")

    def _pairs(self, factor: Expr | Factors, number: int) -> str:
        """Return the pairs of two factors in one register, or of one factor in two registers from ``number`` on."""
        key = ("bf16 pairs", factor, number)
        found = self.body.context.scopes.find(key)
        if found is None:
            found = self.body.context.scopes.remember(key, self._define(factor, number))
        return found.registers[0]

    def _define(self, factor: Expr | Factors, number: int) -> CppValue:
        context = self.body.context
        load = _adjacent(*factor) if isinstance(factor, tuple) else _narrow(factor)
        loaded = load if isinstance(load, Load) else None
        if loaded is not None:
            name = "load_adjacent" if isinstance(factor, tuple) else "load_consecutive"
            value = self.body.memory.load_pairs(loaded, name, number, 2 if isinstance(factor, tuple) else 1)
            if value is not None:
                return value
        if isinstance(factor, tuple):
            low, high = (context.spread(self.body.value(_unrounded(each))) for each in factor)
            exact = all(_unrounded(each) is each for each in factor)
            text = f"join_adjacent<{int(exact)}>({low.register(number)}, {high.register(number)})"
        else:
            low = high = context.spread(self.body.value(_unrounded(factor)))
            exact = _unrounded(factor) is factor
            text = f"join_consecutive<{int(exact)}>({low.register(number)}, {high.register(number + 1)})"
        level = max(low.scope_level, high.scope_level)
        return context.define_as("bf16_pairs", "pairs", text, level, low.reads | high.reads)


def _unrounded(factor: Expr) -> Expr:
    """Return a factor before its last rounding to bf16, which pairs do by themselves; itself where that is exact."""
    narrow = _narrow(factor)
    rounded = isinstance(narrow, Op) and narrow.name == "cast" and narrow.args[0].dtype == f32
    return narrow.args[0] if isinstance(narrow, Op) and rounded else factor


def _narrow(factor: Expr) -> Expr | None:
    """Return the bf16 number that a factor is; None for other factors."""
    if not isinstance(factor, Op) or factor.name != "cast" or factor.dtype != f32:
        return None
    return factor.args[0] if factor.args[0].dtype == bf16 else None


def _adjacent(first: Expr, second: Expr) -> Load | None:
    """Return the first of two elements that are next to one another at every other place of a buffer."""
    low, high = _narrow(first), _narrow(second)
    if not isinstance(low, Load) or not isinstance(high, Load) or low.buffer != high.buffer:
        return None
    return low if add(low.index[0], 1) == high.index[0] else None
