"""The symbol table: ranges, divisors, hints and equalities of a program's symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, lcm
from typing import Literal

from litz_ir.errors import SymbolError
from litz_ir.symbols.nodes import Sum
from litz_ir.symbols.polynomials import add, coefficient, mul
from litz_ir.symbols.substitution import substitute
from litz_ir.symbols.term import Range, Size, Symbol, Term, evaluate, free_symbols, symbol

__all__ = ["DEFAULT_HINT", "SymbolInfo", "SymbolKind", "SymbolTable"]

SymbolKind = Literal["int", "float", "bool"]
"""Kind of a symbol's value."""

DEFAULT_HINT = 4096
"""Value assumed for a size without a hint, before it is moved into its range and to a multiple of its divisor."""


@dataclass(frozen=True, slots=True)
class SymbolInfo:
    """Known facts of one symbol. Floats and bools have no range and divisor 1."""

    name: str
    """Name of the symbol."""
    kind: SymbolKind = "int"
    """Kind of its values."""
    low: int | None = None
    """Lowest value; None for an open end."""
    high: int | None = None
    """Highest value; None for an open end."""
    divisor: int = 1
    """Number that the value is a multiple of."""
    hint: int | float | bool | None = None
    """Value when the program was captured; it steers costs, never legality."""
    source: str = ""
    """Source of the value at run time: an input's dimension, an argument, the result of an extern call."""

    def __post_init__(self) -> None:
        if self.kind not in ("int", "float", "bool"):
            raise SymbolError(f"symbol '{self.name}' has kind '{self.kind}'; kinds are int, float and bool")
        if self.divisor < 1:
            raise SymbolError(f"symbol '{self.name}' has divisor {self.divisor}; a divisor is at least 1")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise SymbolError(f"symbol '{self.name}' has the empty range [{self.low}, {self.high}]")
        if self.kind != "int" and (self.low, self.high, self.divisor) != (None, None, 1):
            raise SymbolError(f"symbol '{self.name}' is a {self.kind}; only ints have a range and a divisor")

    @property
    def term(self) -> Symbol:
        """The symbol as a term."""
        return symbol(self.name)

    @property
    def range(self) -> Range:
        """The values that an int or bool may take."""
        return Range(0, 1) if self.kind == "bool" else Range(self.low, self.high)

    def typical(self) -> int:
        """The hint as an int, or the default hint moved into the range and to a multiple of the divisor."""
        if self.hint is not None:
            return int(self.hint)
        value = DEFAULT_HINT if self.kind == "int" else 1
        if self.high is not None:
            value = min(value, self.high)
        if self.low is not None:
            value = max(value, self.low)
        down = value - value % self.divisor
        fits = self.low is None or down >= self.low
        return down if fits else down + self.divisor


@dataclass(frozen=True)
class SymbolTable:
    """Symbols in order of declaration, and pairs of sizes known to be equal.

    Raises SymbolError if a name is declared twice or an equality uses an undeclared symbol.
    """

    infos: tuple[SymbolInfo, ...] = ()
    """Symbols in order of declaration."""
    equalities: tuple[tuple[Size, Size], ...] = ()
    """Pairs of equal sizes."""

    def __post_init__(self) -> None:
        if len(self._by_name) != len(self.infos):
            names = [info.name for info in self.infos]
            duplicates = sorted({name for name in names if names.count(name) > 1})
            raise SymbolError(f"declared more than once: {', '.join(duplicates)}")
        for left, right in self.equalities:
            for name in sorted(free_symbols(left) | free_symbols(right)):
                if name not in self._by_name:
                    raise SymbolError(f"the equality {left} = {right} uses '{name}', which is not declared")

    @cached_property
    def _by_name(self) -> Mapping[str, SymbolInfo]:
        return {info.name: info for info in self.infos}

    @cached_property
    def _ranges(self) -> Mapping[str, Range]:
        return {info.name: info.range for info in self.infos if info.kind != "float"}

    @cached_property
    def _hints(self) -> Mapping[str, int]:
        return {info.name: info.typical() for info in self.infos if info.kind != "float"}

    @cached_property
    def solved(self) -> tuple[Mapping[str, Size], Mapping[str, Range]]:
        """Symbols as terms of independent ones, and the ranges of those.

        A symbol that is a multiple of 8 becomes eight times a new symbol, and of two equal symbols one is replaced. An
        equality from which no symbol can be isolated is not used.
        """
        facts = dict(self._by_name)
        mapping: dict[str, Size] = {}
        for left, right in self.equalities:
            _isolate(substitute(left, mapping), substitute(right, mapping), mapping, facts)
        ranges = {name: info.range for name, info in facts.items() if info.kind != "float"}
        scaled: dict[str, Size] = {}
        for info in facts.values():
            if info.divisor > 1 and info.name not in mapping:
                unit = f"{info.name}.per{info.divisor}"
                scaled[info.name] = mul(symbol(unit), info.divisor)
                ranges[unit] = Range(
                    None if info.low is None else -(-info.low // info.divisor),
                    None if info.high is None else info.high // info.divisor,
                )
        solved = {name: substitute(x, scaled) for name, x in mapping.items()}
        return {**scaled, **solved}, ranges

    def __iter__(self) -> Iterator[SymbolInfo]:
        return iter(self.infos)

    def __len__(self) -> int:
        return len(self.infos)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> SymbolInfo:
        """The symbol called `name`; raises SymbolError if there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            known = ", ".join(self._by_name) or "none"
            raise SymbolError(f"symbol '{name}' is not declared; declared: {known}") from None

    def get(self, name: str) -> SymbolInfo | None:
        """The symbol called `name`, or None."""
        return self._by_name.get(name)

    def ranges(self) -> Mapping[str, Range]:
        """The ranges of all int and bool symbols, read-only."""
        return self._ranges

    def hint(self, x: Size) -> int:
        """A typical value of `x`, for cost models: every symbol at its hint.

        A symbol without a hint counts as DEFAULT_HINT, moved into its range and to a multiple of its divisor. Raises
        SymbolError for undeclared symbols.
        """
        return x if isinstance(x, int) else evaluate(x, self._hints)

    def add(self, *infos: SymbolInfo) -> SymbolTable:
        """The table with further symbols."""
        return replace(self, infos=(*self.infos, *infos))

    def add_equality(self, left: Size, right: Size) -> SymbolTable:
        """The table with the further equality `left == right`."""
        return replace(self, equalities=(*self.equalities, (left, right)))

    def replace_info(self, info: SymbolInfo) -> SymbolTable:
        """The table with `info` in place of the symbol of that name; raises SymbolError if there is none."""
        before = self[info.name]
        return replace(self, infos=tuple(info if each is before else each for each in self.infos))

    def restricted_to(self, names: frozenset[str]) -> SymbolTable:
        """The table with only the symbols in `names`, and the equalities among them."""
        return SymbolTable(
            tuple(info for info in self.infos if info.name in names),
            tuple(
                (left, right)
                for left, right in self.equalities
                if free_symbols(left) | free_symbols(right) <= names
            ),
        )


def _isolate(left: Size, right: Size, mapping: dict[str, Size], facts: dict[str, SymbolInfo]) -> None:
    """Solve `left == right` for a symbol with coefficient 1 or -1, if there is one, and replace it in `mapping`."""
    difference = add(left, mul(right, -1))
    for name in sorted(free_symbols(difference), reverse=True):
        slope = coefficient(difference, name)
        if slope not in (1, -1):
            continue
        assert isinstance(slope, int)
        rest = add(difference, mul(symbol(name), -slope))
        if name in free_symbols(rest):
            continue
        value = mul(rest, -slope)
        if isinstance(value, int):
            facts[name] = replace(_narrowed(facts[name], value, value, facts[name].divisor), divisor=1)
            return
        for other, x in mapping.items():
            mapping[other] = substitute(x, {name: value})
        mapping[name] = value
        _carry_over(facts[name], value, facts)
        return


def _carry_over(info: SymbolInfo, value: Term, facts: dict[str, SymbolInfo]) -> None:
    """Transfer the facts of a replaced symbol to the symbol in `value`, if that is `slope*other + constant`."""
    names = value.free_symbols
    if not value.is_polynomial or len(names) != 1 or info.kind != "int":
        return
    (name,) = names
    slope = coefficient(value, name)
    if not isinstance(slope, int):
        return
    constant = value.constant if isinstance(value, Sum) else 0
    low, high = (info.low, info.high) if slope > 0 else (info.high, info.low)
    facts[name] = _narrowed(
        facts[name],
        None if low is None else -((constant - low) // slope),
        None if high is None else (high - constant) // slope,
        1 if constant else info.divisor // gcd(info.divisor, slope),
    )


def _narrowed(info: SymbolInfo, low: int | None, high: int | None, divisor: int) -> SymbolInfo:
    """The facts of a symbol that is also in `[low, high]` and a multiple of `divisor`."""
    if info.kind != "int":
        return info
    lows = [end for end in (info.low, low) if end is not None]
    highs = [end for end in (info.high, high) if end is not None]
    low, high = max(lows, default=None), min(highs, default=None)
    if low is not None and high is not None and low > high:
        raise SymbolError(f"the equalities leave no value for '{info.name}': it would lie in [{low}, {high}]")
    return replace(info, low=low, high=high, divisor=lcm(info.divisor, divisor))
