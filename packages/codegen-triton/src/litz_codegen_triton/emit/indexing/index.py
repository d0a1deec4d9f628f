"""Index terms as Triton arithmetic on program ids and ranges of indices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from litz_codegen_triton.emit.indexing.mask import Masks
from litz_codegen_triton.emit.source.text import EmittedValue
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
"""The largest index that signed 32-bit arithmetic holds."""

_SUM, _TIMES, _UNIT = 0, 1, 2
"""The operators that a text may be an operand of without parentheses: ``+``, then ``*`` too, then any."""


def fits_narrow(terms: Iterable[Size], ranges: Mapping[str, Range]) -> bool:
    """True when every term and subterm is known to fit signed 32-bit arithmetic; an unbounded one does not."""
    visited: set[Term] = set()
    memo: dict[Term, tuple[int | None, int | None]] = {}
    stack: list[Size] = list(terms)
    while stack:
        term = stack.pop()
        if isinstance(term, int):
            if abs(term) > NARROW:
                return False
            continue
        if term in visited:
            continue
        visited.add(term)
        low, high = interval_bounds(term, ranges, memo)
        if low is None or high is None or low < -NARROW or high > NARROW:
            return False
        stack.extend(term.children())
    return True


class IndexTerms:
    """Writes index terms of one kernel.

    ``indirect`` writes an index that is loaded from memory. ``symbols`` has the value of each index and size symbol;
    its owner sets those of tiles as it enters them. ``names`` names quotients and remainders that are an axis of the
    kernel after that axis. ``block_positions`` has, by index, the block size of a dimension and the number of the CTA's
    tile along it as text: a quotient that is constant over the tile is written as a scalar, and loads at it as well.
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
        """Write a term as text that may be an operand of ``+``."""
        return self._written(term, _SUM)

    def unit(self, term: Size) -> EmittedValue:
        """Write a term as text that may be an operand of any operator."""
        return self._written(term, _UNIT)

    def _written(self, term: Size, strength: int) -> EmittedValue:
        """Write a term as text that may be an operand of the operators of ``strength``."""
        if isinstance(term, int):
            text = str(term)
            return EmittedValue(f"({text})" if term < 0 and strength > _SUM else text, literal=True)
        if isinstance(term, Sum):
            return self._sum(term, strength)
        if isinstance(term, Product):
            operands = [self._written(operand, _UNIT) for operand in term.factors]
            text = " * ".join(operand.text for operand in operands)
            return _combined(text, operands, strength > _TIMES)
        return self._leaf(term)

    def _sum(self, term: Sum, strength: int) -> EmittedValue:
        """Write a sum, with minus signs for negative coefficients."""
        operands = [self._written(operand, _TIMES) for operand, _ in term.terms]
        text = ""
        for operand, (_, scale) in zip(operands, term.terms):
            scaled = operand.text if abs(scale) == 1 else f"{operand.text} * {abs(scale)}"
            text = (
                f"{text} {'-' if scale < 0 else '+'} {scaled}"
                if text
                else f"{'-' if scale < 0 else ''}{scaled}"
            )
        if term.constant:
            text += f" {'-' if term.constant < 0 else '+'} {abs(term.constant)}"
        only = len(term.terms) == 1 and not term.constant
        return _combined(text, operands, strength > (_TIMES if only and term.terms[0][1] > 0 else _SUM))

    def _leaf(self, term: Term) -> EmittedValue:
        """Return a symbol's value, or the variable of a quotient, remainder or extremum, written once."""
        if isinstance(term, Symbol):
            return self.symbols[term.name]
        if isinstance(term, Indirect):
            return self._indirect(term)
        # A value that was loaded under a condition is valid under that condition alone.
        key: Hashable = (term, self.masks.conditions) if indirects_in(term) else term
        found = self.writer.known(key)
        if found is not None:
            return found
        match term:
            case FloorDiv() | Mod():
                base, text, operands = self._quotient(term)
            case Min() | Max():
                base, text, operands = self._extremum(term)
            case _:
                raise TypeError(f"unknown kind of term: {type(term).__name__}")
        value = _combined(text, operands, False)
        name = self.names.get(term, base)
        return self.writer.remember(key, self.writer.define(name, text, value.dims, value.depth))

    def _quotient(self, term: FloorDiv | Mod) -> tuple[str, str, list[EmittedValue]]:
        """Return a name, the text and the operands of a quotient or remainder."""
        if isinstance(term, FloorDiv) and isinstance(term.dividend, Symbol) and isinstance(term.divisor, int):
            block, tile = self.block_positions.get(term.dividend.name, (0, ""))
            if block and term.divisor % block == 0:
                return "quotient", f"{tile} // {term.divisor // block}", []
        dividend, divisor = self.unit(term.dividend), self.unit(term.divisor)
        divides = isinstance(term, FloorDiv)
        low, least = bounds(term.dividend, self.ranges).low, bounds(term.divisor, self.ranges).low
        base = "quotient" if divides else "rest"
        if low is not None and low >= 0 and least is not None and least >= 0:
            # Triton's operators round towards zero, which is rounding down for operands that are not negative.
            text = f"{dividend.text} {'//' if divides else '%'} {divisor.text}"
        else:
            text = f"litz_index_floor_{'div' if divides else 'mod'}({dividend.text}, {divisor.text})"
        return base, text, [dividend, divisor]

    def _extremum(self, term: Min | Max) -> tuple[str, str, list[EmittedValue]]:
        """Return a name, the text and the operands of a minimum or maximum."""
        name = "minimum" if isinstance(term, Min) else "maximum"
        operands = [self.unit(arg) for arg in term.args]
        text = operands[0].text
        for operand in operands[1:]:
            text = f"tl.{name}({text}, {operand.text})"
        return name, text, operands


def _combined(text: str, operands: Iterable[EmittedValue], parenthesised: bool) -> EmittedValue:
    """Return the value of a text with the dimensions and the depth of its operands."""
    operands = tuple(operands)
    dims = frozenset().union(*(operand.dims for operand in operands))
    depth = max((operand.depth for operand in operands), default=0)
    return EmittedValue(f"({text})" if parenthesised else text, dims, depth)
