"""Index terms in C++: scalar ``int64_t`` arithmetic, each part at the loop level that knows it, and lane by lane."""

from __future__ import annotations

from dataclasses import dataclass

from litz_codegen_cpp.emit.context import Context
from litz_codegen_cpp.emit.scopes import CppValue
from litz_ir.dtypes import i32, i64
from litz_ir.errors import CodegenError
from litz_ir.scalar import Expr, Indirect, indirects_in
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
    free_symbols,
    mul,
    substitute,
    symbol,
)  # fmt: skip

_INT32 = 2**31

LANES = "LITZ_LANES"
"""The number of lanes as a symbol: the compiler's flags decide it, not the text."""

_LANES = symbol(LANES)


@dataclass(frozen=True, slots=True)
class IndexText:
    """C++ text of a scalar index; ``simple`` when it needs no brackets."""

    text: str
    scope_level: int
    simple: bool = True
    reads: frozenset[str] = frozenset()

    def bracketed(self) -> str:
        """The text as an operand."""
        return self.text if self.simple else f"({self.text})"


class Indices:
    """Writes index terms. ``indirect`` makes the checked index of an indirect one: a scalar, or one per lane."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def indirect(self, atom: Indirect) -> CppValue:
        """The value of an indirect index, wrapped and checked, ``i64``."""
        raise NotImplementedError

    def may_vary(self, expr: Expr) -> bool:
        """True when some part of the expression differs between lanes."""
        raise NotImplementedError

    # --- scalars --------------------------------------------------------------------------------------------

    def scalar(self, x: Size) -> IndexText:
        """The text of a term at the innermost scope; what is known further out is computed there.

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
        """The term as a variable in the outermost scope that knows all of it."""
        scopes = self.context.scopes
        found = scopes.find(("term", x))
        if found is None:
            piece = self._compound(x)
            if piece.text.isidentifier():
                return piece
            value = self.context.define("at", piece.text, i64, piece.scope_level, reads=piece.reads)
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
        items = [(self.scalar(term), term, factor) for term, factor in x.terms if term is not _LANES]
        home = max((piece.scope_level for piece, _, _ in items), default=0)
        inner = [(piece, factor) for piece, _, factor in items if piece.scope_level == home]
        outer = [(term, factor) for piece, term, factor in items if piece.scope_level < home]
        texts: list[tuple[str, str]] = []
        reads = frozenset[str]().union(*(piece.reads for piece, _, _ in items))
        if outer:
            invariant = add(*(mul(term, factor) for term, factor in outer))
            piece = self.scalar(invariant) if isinstance(invariant, (int, Symbol)) else self.named(invariant)
            texts.append(("+", piece.bracketed()))
        for piece, factor in inner:
            size = abs(factor)
            texts.append(
                ("-" if factor < 0 else "+", piece.bracketed() + (f"*{_integer(size)}" if size != 1 else ""))
            )
        for factor in (factor for term, factor in x.terms if term is _LANES):
            texts.append(
                ("-" if factor < 0 else "+", LANES if abs(factor) == 1 else f"{abs(factor)} * {LANES}")
            )
        if x.constant:
            texts.append(("-" if x.constant < 0 else "+", _integer(abs(x.constant))))
        first = ("" if texts[0][0] == "+" else "-") + texts[0][1]
        text = first + "".join(f" {sign} {each}" for sign, each in texts[1:])
        return IndexText(text, home, text.isidentifier(), reads)

    def _product(self, x: Product) -> IndexText:
        items = [(self.scalar(factor), factor) for factor in x.factors]
        home = max(piece.scope_level for piece, _ in items)
        outer = [factor for piece, factor in items if piece.scope_level < home]
        texts = [piece.bracketed() for piece, _ in items if piece.scope_level == home]
        if outer:
            invariant = mul(*outer)
            piece = self.scalar(invariant) if isinstance(invariant, (int, Symbol)) else self.named(invariant)
            texts.insert(0, piece.bracketed())
        reads = frozenset[str]().union(*(piece.reads for piece, _ in items))
        return IndexText("*".join(texts), home, len(texts) == 1, reads)

    def _quotient(self, x: FloorDiv | Mod) -> IndexText:
        dividend, divisor = self.scalar(x.dividend), self.scalar(x.divisor)
        home, reads = max(dividend.scope_level, divisor.scope_level), dividend.reads | divisor.reads
        if self._plain_division(x):
            sign = "/" if isinstance(x, FloorDiv) else "%"
            return IndexText(f"{dividend.bracketed()} {sign} {divisor.bracketed()}", home, False, reads)
        name = "floor_div" if isinstance(x, FloorDiv) else "remainder"
        return IndexText(f"{name}<int64_t>({dividend.text}, {divisor.text})", home, True, reads)

    def _extremum(self, x: Min | Max) -> IndexText:
        pieces = [self.scalar(arg) for arg in x.args]
        name = "minimum" if isinstance(x, Min) else "maximum"
        text = pieces[0].text
        for piece in pieces[1:]:
            text = f"{name}<int64_t>({text}, {piece.text})"
        reads = frozenset[str]().union(*(piece.reads for piece in pieces))
        return IndexText(text, max(piece.scope_level for piece in pieces), True, reads)

    def _plain_division(self, x: FloorDiv | Mod) -> bool:
        """True when C++'s division agrees with the term's: nothing is negative."""
        low = bounds(x.dividend, self.context.ranges).low
        divisor = bounds(x.divisor, self.context.ranges).low
        return low is not None and low >= 0 and divisor is not None and divisor >= 1

    # --- lanes ----------------------------------------------------------------------------------------------

    def varies(self, x: Size) -> bool:
        """True when the term may differ from lane to lane, or between registers side by side."""
        return self._moves(x) and (self.context.registers > 1 or self.lane_stride(x) != 0)

    def _moves(self, x: Size) -> bool:
        """True when the axis along the lanes is in the term, or an indirect index in it may differ between lanes."""
        axis = self.context.vector
        if axis is None:
            return False
        return axis in free_symbols(x) or any(self.may_vary(atom.value) for atom in indirects_in(x))

    def shifted(self, x: Size, part: int) -> Size:
        """The term as register number ``part`` sees it, for the first lane of that register."""
        axis = self.context.vector
        if part == 0 or axis is None:
            return x
        return substitute(x, {axis: add(symbol(axis), mul(_LANES, part))})

    def lane_stride(self, x: Size, registers: int = 1) -> Size | None:
        """Growth of the term from lane to lane of so many registers side by side, one or two; ``None`` when not the
        same between all lanes.

        They start at a multiple of the number of their lanes, so a division by such a multiple is the same in all.
        """
        axis = self.context.vector
        if axis is None or not self._moves(x):
            return 0
        match x:
            case Symbol():
                return 1
            case Sum():
                strides = [(self.lane_stride(term, registers), factor) for term, factor in x.terms]
                if any(stride is None for stride, _ in strides):
                    return None
                return add(*(mul(stride, factor) for stride, factor in strides if stride is not None))
            case Product():
                moving = [factor for factor in x.factors if self._moves(factor)]
                stride = self.lane_stride(moving[0], registers) if len(moving) == 1 else None
                return None if stride is None else mul(stride, *(f for f in x.factors if not self._moves(f)))
            case FloorDiv() | Mod() if self._aligned(x, axis, registers):
                return 0 if isinstance(x, FloorDiv) else 1
        return None

    def _aligned(self, x: FloorDiv | Mod, axis: str, registers: int) -> bool:
        """True when the dividend is the axis plus multiples of the lane count, and the divisor is such a multiple."""
        lanes = self.context.lanes * registers
        if not isinstance(x.divisor, int) or x.divisor % lanes:
            return False
        if isinstance(x.dividend, Symbol):
            return True
        if not isinstance(x.dividend, Sum) or x.dividend.constant % lanes:
            return False
        return all(
            factor == 1 if isinstance(term, Symbol) and term.name == axis
            else (factor % lanes == 0 or term is _LANES) and not self._moves(term)
            for term, factor in x.dividend.terms
        )  # fmt: skip

    def fits_int32(self, x: Size) -> bool:
        """True when the term and all that it is made of stay within 31 bits."""
        if isinstance(x, Indirect) and not isinstance(x.size, int):
            return False
        known = bounds(x, self.context.ranges)
        if known.low is None or known.high is None or known.low <= -_INT32 or known.high >= _INT32:
            return False
        if isinstance(x, (int, Indirect)):
            return True
        return all(self.fits_int32(child) for child in x.children())

    def per_lane(self, x: Size, narrow: bool = False) -> CppValue:
        """The term in every lane: ``i64``, or ``i32`` when ``narrow``, which :meth:`fits_int32` must allow."""
        dtype = i32 if narrow else i64
        key = ("lanes", dtype.name, x)
        found = self.context.scopes.find(key)
        if found is not None:
            return found
        pieces = [self._lanes(self.shifted(x, part), narrow) for part in range(self.context.registers)]
        home = max(piece.scope_level for piece in pieces)
        reads = frozenset[str]().union(*(piece.reads for piece in pieces))
        value = self.context.define(
            "at", tuple(piece.text for piece in pieces), dtype, home, varying=True, reads=reads
        )
        return self.context.scopes.remember(key, value)

    def _lanes(self, x: Size, narrow: bool) -> IndexText:
        kind = "int32_t" if narrow else "int64_t"
        stride = self.lane_stride(x)
        if stride is not None:
            base = self.scalar(x)
            start = f"{kind}({base.text})" if narrow else base.text
            if stride == 0:
                return IndexText(f"broadcast<{kind}>({start})", base.scope_level, True, base.reads)
            if stride == 1:
                return IndexText(f"iota<{kind}>({start})", base.scope_level, True, base.reads)
            step = self.scalar(stride)
            text = f"broadcast<{kind}>({start}) + iota<{kind}>(0) * broadcast<{kind}>({step.text})"
            return IndexText(text, max(base.scope_level, step.scope_level), False, base.reads)
        match x:
            case Sum():
                return self._lane_sum(x, narrow)
            case Product():
                pieces = [self._lanes(factor, narrow) for factor in x.factors]
                return _joined(" * ", pieces)
            case FloorDiv() | Mod():
                return self._lane_quotient(x, narrow)
            case Min() | Max():
                return self._lane_extremum(x, narrow)
            case Indirect():
                value = self.context.spread(self.indirect(x))
                return IndexText(
                    f"convert<int32_t>({value.registers[0]})" if narrow else value.registers[0],
                    value.scope_level,
                    True,
                    value.reads,
                )
        raise CodegenError(f"no C++ form for the index term {x}", node=self.context.kernel.name)

    def _lane_sum(self, x: Sum, narrow: bool) -> IndexText:
        kind = "int32_t" if narrow else "int64_t"
        linear: list[Size] = [x.constant]
        others: list[IndexText] = []
        for term, factor in x.terms:
            if self.lane_stride(term) is not None:
                linear.append(mul(term, factor))
                continue
            piece = self._lanes(term, narrow)
            scaled = (
                piece
                if factor == 1
                else _joined(" * ", [piece, IndexText(f"broadcast<{kind}>({factor})", 0)])
            )
            others.append(scaled)
        rest = add(*linear)
        return _joined(" + ", others if rest == 0 else [self._lanes(rest, narrow), *others])

    def _lane_quotient(self, x: FloorDiv | Mod, narrow: bool) -> IndexText:
        dividend = self._lanes(x.dividend, narrow)
        if narrow and isinstance(x.divisor, int) and self._plain_division(x):
            # A literal divisor of a native vector becomes a multiplication.
            sign = "/" if isinstance(x, FloorDiv) else "%"
            return IndexText(
                f"({dividend.bracketed()} {sign} {x.divisor})", dividend.scope_level, True, dividend.reads
            )
        name = "floor_div" if isinstance(x, FloorDiv) else "remainder"
        return _joined(", ", [dividend, self._lanes(x.divisor, narrow)], call=name)

    def _lane_extremum(self, x: Min | Max, narrow: bool) -> IndexText:
        name = "minimum" if isinstance(x, Min) else "maximum"
        pieces = [self._lanes(arg, narrow) for arg in x.args]
        result = pieces[0]
        for piece in pieces[1:]:
            result = _joined(", ", [result, piece], call=name)
        return result


def _joined(sign: str, pieces: list[IndexText], call: str = "") -> IndexText:
    home = max(piece.scope_level for piece in pieces)
    reads = frozenset[str]().union(*(piece.reads for piece in pieces))
    if call:
        return IndexText(f"{call}({sign.join(piece.text for piece in pieces)})", home, True, reads)
    if len(pieces) == 1:
        return pieces[0]
    return IndexText(sign.join(piece.bracketed() for piece in pieces), home, False, reads)


def _integer(value: int) -> str:
    return str(value) if abs(value) < 2**63 else f"{value}ull"
