"""Index terms in C++, as ``int64_t`` arithmetic, each subterm in the scope that knows it."""

from __future__ import annotations

from dataclasses import dataclass

from litz_codegen_cpp.emit.source.context import Context
from litz_codegen_cpp.emit.source.scopes import CppValue
from litz_ir.dtypes import i64
from litz_ir.errors import CodegenError
from litz_ir.scalar import Const, Expr, Index, Indirect
from litz_ir.symbols import (
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Size,
    Sum,
    Symbol,
    Term,
    add,
    bounds,
    mul,
    symbol,
)  # fmt: skip

LANES = "LITZ_LANES"
"""Name of the number of lanes, which the compiler's flags determine and not the text."""

LANE_COUNT = symbol(LANES)


@dataclass(frozen=True, slots=True)
class IndexText:
    """The C++ text of an index."""

    text: str
    """The expression."""
    scope_level: int
    """The level of the outermost scope that knows its operands."""
    simple: bool = True
    """True when it needs no parentheses as an operand."""
    reads: frozenset[str] = frozenset()
    """The buffers written by the kernel on whose elements it depends."""

    def bracketed(self) -> str:
        """Return the text as an operand."""
        return self.text if self.simple else f"({self.text})"


class Indices:
    """Emits index terms. A subclass provides indirect indices."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def indirect(self, atom: Indirect) -> CppValue:
        """Return the ``i64`` value of an indirect index, wrapped and checked; a scalar or one per lane."""
        raise NotImplementedError

    def value(self, expr: Expr) -> CppValue:
        """Return the value of an expression."""
        raise NotImplementedError

    def scalar(self, x: Size) -> IndexText:
        """Return the text of a term at the innermost scope; subterms known further out are computed there.

        The vector axis stands for its value in the first lane.
        """
        if isinstance(x, int):
            return IndexText(_integer(x), 0, x >= 0)
        if isinstance(x, Symbol):
            return self._symbol(x.name)
        known = self.context.scopes.find(("term", x))
        if known is not None:
            return IndexText(known.registers[0], known.scope_level, reads=known.reads)
        if isinstance(x, Sum):
            return self._sum(x)
        if isinstance(x, Product):
            return self._product(x)
        return self.named(x)

    def named(self, x: Term) -> IndexText:
        """Return the term as a variable in the outermost scope that knows all its operands."""
        scopes = self.context.scopes
        found = scopes.find(("term", x))
        if found is None:
            operand = self._compound(x)
            if operand.text.isidentifier():
                return operand
            value = self.context.define("at", operand.text, i64, operand.scope_level, reads=operand.reads)
            found = scopes.remember(("term", x), value)
        return IndexText(found.registers[0], found.scope_level, reads=found.reads)

    def _symbol(self, name: str) -> IndexText:
        if name == LANES:
            return IndexText(name, 0)
        found = self.context.scopes.axis(name)
        if found is None:
            raise CodegenError(
                f"index symbol {name!r} is neither an axis in scope nor a symbol of the kernel",
                node=self.context.kernel.name,
            )
        return IndexText(*found)

    def _compound(self, x: Term) -> IndexText:
        match x:
            case Sum():
                return self._sum(x)
            case Product():
                return self._product(x)
            case FloorDiv() | Mod():
                return self._quotient(x)
            case Min() | Max():
                return self._extremum(x)
            case Indirect():
                value = self.indirect(x)
                return IndexText(value.registers[0], value.scope_level, reads=value.reads)
        raise CodegenError(f"no C++ form for the index term {x}", node=self.context.kernel.name)

    def _sum(self, x: Sum) -> IndexText:
        """Return a sum; its loop-invariant terms are added in the scope that knows them."""
        items = [(self.scalar(term), term, factor) for term, factor in x.terms if term is not LANE_COUNT]
        level = max((operand.scope_level for operand, _, _ in items), default=0)
        inner = [(operand, factor) for operand, _, factor in items if operand.scope_level == level]
        outer = [(term, factor) for operand, term, factor in items if operand.scope_level < level]
        texts: list[tuple[str, str]] = []
        reads = frozenset[str]().union(*(operand.reads for operand, _, _ in items))
        if outer:
            invariant = add(*(mul(term, factor) for term, factor in outer))
            operand = (
                self.scalar(invariant) if isinstance(invariant, (int, Symbol)) else self.named(invariant)
            )
            texts.append(("+", operand.bracketed()))
        for operand, factor in inner:
            size = abs(factor)
            texts.append(
                (
                    "-" if factor < 0 else "+",
                    operand.bracketed() + (f"*{_integer(size)}" if size != 1 else ""),
                )
            )
        for factor in (factor for term, factor in x.terms if term is LANE_COUNT):
            texts.append(
                ("-" if factor < 0 else "+", LANES if abs(factor) == 1 else f"{abs(factor)} * {LANES}")
            )
        if x.constant:
            texts.append(("-" if x.constant < 0 else "+", _integer(abs(x.constant))))
        first = ("" if texts[0][0] == "+" else "-") + texts[0][1]
        text = first + "".join(f" {sign} {each}" for sign, each in texts[1:])
        return IndexText(text, level, text.isidentifier(), reads)

    def _product(self, x: Product) -> IndexText:
        """Return a product; its loop-invariant factors are multiplied in the scope that knows them."""
        items = [(self.scalar(factor), factor) for factor in x.factors]
        level = max(operand.scope_level for operand, _ in items)
        outer = [factor for operand, factor in items if operand.scope_level < level]
        texts = [operand.bracketed() for operand, _ in items if operand.scope_level == level]
        if outer:
            invariant = mul(*outer)
            operand = (
                self.scalar(invariant) if isinstance(invariant, (int, Symbol)) else self.named(invariant)
            )
            texts.insert(0, operand.bracketed())
        reads = frozenset[str]().union(*(operand.reads for operand, _ in items))
        return IndexText("*".join(texts), level, len(texts) == 1, reads)

    def _quotient(self, x: FloorDiv | Mod) -> IndexText:
        dividend, divisor = self.scalar(x.dividend), self.scalar(x.divisor)
        level, reads = max(dividend.scope_level, divisor.scope_level), dividend.reads | divisor.reads
        if self.is_plain_division(x):
            sign = "/" if isinstance(x, FloorDiv) else "%"
            return IndexText(f"{dividend.bracketed()} {sign} {divisor.bracketed()}", level, False, reads)
        name = "floor_div" if isinstance(x, FloorDiv) else "remainder"
        return IndexText(f"{name}<int64_t>({dividend.text}, {divisor.text})", level, True, reads)

    def _extremum(self, x: Min | Max) -> IndexText:
        operands = [self.scalar(arg) for arg in x.args]
        name = "minimum" if isinstance(x, Min) else "maximum"
        text = operands[0].text
        for operand in operands[1:]:
            text = f"{name}<int64_t>({text}, {operand.text})"
        reads = frozenset[str]().union(*(operand.reads for operand in operands))
        return IndexText(text, max(operand.scope_level for operand in operands), True, reads)

    def is_plain_division(self, x: FloorDiv | Mod) -> bool:
        """Return True when C++'s division agrees with floor division, since nothing is negative."""
        low = bounds(x.dividend, self.context.ranges).low
        divisor = bounds(x.divisor, self.context.ranges).low
        return low is not None and low >= 0 and divisor is not None and divisor >= 1


def combined(sign: str, operands: list[IndexText], call: str = "") -> IndexText:
    """Return operands joined by an operator, or as arguments of ``call``."""
    level = max(operand.scope_level for operand in operands)
    reads = frozenset[str]().union(*(operand.reads for operand in operands))
    if call:
        return IndexText(f"{call}({sign.join(operand.text for operand in operands)})", level, True, reads)
    if len(operands) == 1:
        return operands[0]
    return IndexText(sign.join(operand.bracketed() for operand in operands), level, False, reads)


def _integer(value: int) -> str:
    return str(value) if abs(value) < 2**63 else f"{value}ull"


def index_of(expr: Expr) -> Size | None:
    """Return the index term whose value an expression is, else None."""
    if isinstance(expr, Index):
        return expr.term
    return int(expr.value) if isinstance(expr, Const) and expr.dtype == i64 else None
