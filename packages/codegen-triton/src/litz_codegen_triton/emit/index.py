"""Index terms as Triton arithmetic on program ids and ranges."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from litz_codegen_triton.emit.mask import Masks
from litz_codegen_triton.emit.text import EmittedValue
from litz_ir.scalar import Indirect, indirects_in
from litz_ir.symbols import (
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Range,
    Size,
    Sum,
    Symbol,
    Term,
    bounds,
    interval_bounds,
)

NARROW = 2**31 - 1
"""The largest index that 32-bit arithmetic holds."""

_SUM, _PRODUCT, _UNIT = 0, 1, 2


def fits_narrow(terms: Iterable[Size], ranges: Mapping[str, Range]) -> bool:
    """True when every part of the terms that arithmetic computes is known to fit 32 bits with a sign."""
    seen: set[Term] = set()
    memo: dict[Term, tuple[int | None, int | None]] = {}
    stack: list[Size] = list(terms)
    while stack:
        term = stack.pop()
        if isinstance(term, int):
            if abs(term) > NARROW:
                return False
            continue
        if term in seen:
            continue
        seen.add(term)
        low, high = interval_bounds(term, ranges, memo)
        if low is None or high is None or low < -NARROW or high > NARROW:
            return False
        stack.extend(term.children())
    return True


class IndexTerms:
    """Writes terms for one kernel.

    ``symbols`` says what each axis or size symbol is called; it is filled by the owner as tiles come and go.
    ``names`` gives quotients that are an axis of the kernel that axis' name; ``block_positions`` the block and the
    place of the program's tile along dimensions, by their index: a quotient that is the same all over the tile is a
    scalar then, and so is what is read there. ``indirect`` writes an index that was loaded.
    """

    def __init__(
        self,
        masks: Masks,
        ranges: Mapping[str, Range],
        narrow: bool,
        indirect: Callable[[Indirect], EmittedValue],
    ) -> None:
        self.masks = masks
        self.writer = masks.writer
        self.ranges = ranges
        self.narrow = narrow
        self.symbols: dict[str, EmittedValue] = {}
        self.names: dict[Term, str] = {}
        self.block_positions: dict[str, tuple[int, str]] = {}
        self._indirect = indirect

    @property
    def type(self) -> str:
        """The Triton type of indices."""
        return "tl.int32" if self.narrow else "tl.int64"

    def value(self, term: Size) -> EmittedValue:
        """A term as an expression that stands for itself in a sum."""
        return self._written(term, _SUM)

    def unit(self, term: Size) -> EmittedValue:
        """A term as an expression that may be an operand of anything."""
        return self._written(term, _UNIT)

    def _written(self, term: Size, strength: int) -> EmittedValue:
        if isinstance(term, int):
            text = str(term)
            return EmittedValue(f"({text})" if term < 0 and strength > _SUM else text, literal=True)
        if isinstance(term, Sum):
            return self._sum(term, strength)
        if isinstance(term, Product):
            parts = [self._written(factor, _UNIT) for factor in term.factors]
            return _joined(" * ".join(part.text for part in parts), parts, strength > _PRODUCT)
        return self._leaf(term)

    def _sum(self, term: Sum, strength: int) -> EmittedValue:
        parts = [self._written(part, _PRODUCT) for part, _ in term.terms]
        text = ""
        for part, (_, factor) in zip(parts, term.terms):
            piece = part.text if abs(factor) == 1 else f"{part.text} * {abs(factor)}"
            text = (
                f"{text} {'-' if factor < 0 else '+'} {piece}"
                if text
                else f"{'-' if factor < 0 else ''}{piece}"
            )
        if term.constant:
            text += f" {'-' if term.constant < 0 else '+'} {abs(term.constant)}"
        only = len(term.terms) == 1 and not term.constant
        return _joined(text, parts, strength > (_PRODUCT if only and term.terms[0][1] > 0 else _SUM))

    def _leaf(self, term: Term) -> EmittedValue:
        """A symbol, or a name for what is worth computing once."""
        if isinstance(term, Symbol):
            return self.symbols[term.name]
        if isinstance(term, Indirect):
            return self._indirect(term)
        # What was loaded under a condition is good for nothing else.
        key: Hashable = (term, self.masks.conditions) if indirects_in(term) else term
        found = self.writer.known(key)
        if found is not None:
            return found
        match term:
            case FloorDiv() | Mod():
                base, text, parts = self._quotient(term)
            case Min() | Max():
                base, text, parts = self._extremum(term)
            case _:
                raise TypeError(f"unknown kind of term: {type(term).__name__}")
        joined = _joined(text, parts, False)
        name = self.names.get(term, base)
        return self.writer.remember(key, self.writer.define(name, text, joined.dims, joined.depth))

    def _quotient(self, term: FloorDiv | Mod) -> tuple[str, str, list[EmittedValue]]:
        if isinstance(term, FloorDiv) and isinstance(term.dividend, Symbol) and isinstance(term.divisor, int):
            block, place = self.block_positions.get(term.dividend.name, (0, ""))
            if block and term.divisor % block == 0:
                return "quotient", f"{place} // {term.divisor // block}", []
        dividend, divisor = self.unit(term.dividend), self.unit(term.divisor)
        divides = isinstance(term, FloorDiv)
        low, least = bounds(term.dividend, self.ranges).low, bounds(term.divisor, self.ranges).low
        base = "quotient" if divides else "rest"
        if low is not None and low >= 0 and least is not None and least >= 0:
            # Triton's own operators round towards zero, which is the same here.
            text = f"{dividend.text} {'//' if divides else '%'} {divisor.text}"
        else:
            text = f"litz_index_floor_{'div' if divides else 'mod'}({dividend.text}, {divisor.text})"
        return base, text, [dividend, divisor]

    def _extremum(self, term: Min | Max) -> tuple[str, str, list[EmittedValue]]:
        name = "minimum" if isinstance(term, Min) else "maximum"
        parts = [self.unit(arg) for arg in term.args]
        text = parts[0].text
        for part in parts[1:]:
            text = f"tl.{name}({text}, {part.text})"
        return name, text, parts


def _joined(text: str, parts: Iterable[EmittedValue], parenthesised: bool) -> EmittedValue:
    parts = tuple(parts)
    dims = frozenset().union(*(part.dims for part in parts))
    depth = max((part.depth for part in parts), default=0)
    return EmittedValue(f"({text})" if parenthesised else text, dims, depth)
