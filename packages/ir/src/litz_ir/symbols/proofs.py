"""Proofs about sizes, which answer true, false or unknown.

Callers treat unknown as the general case. Hints are not used. A predicate over a term that divides by zero has no
meaning, and any answer is correct.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Literal, TypeAlias, assert_never

from litz_ir.symbols.nodes import Mod, monomial
from litz_ir.symbols.polynomials import add, divide, mul, summands
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.simplification import Simplifier
from litz_ir.symbols.substitution import substitute
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Range, Size

PredicateKind = Literal["eq", "ne", "lt", "le", "divides"]
"""Relation of a predicate."""

Knowledge: TypeAlias = SymbolTable | Mapping[str, Range]
"""The basis of proofs: a symbol table, or ranges alone."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A relation of two sizes: `a == b`, `a != b`, `a < b`, `a <= b`, or `a` divides `b` (`b == k*a` for an integer
    `k`).
    """

    kind: PredicateKind
    """Relation of `a` to `b`."""
    a: Size
    """First size."""
    b: Size
    """Second size."""


class Prover:
    """Proofs from one symbol table or one set of ranges, with a cache of derived facts."""

    __slots__ = ("_mapping", "_simplifier")

    def __init__(self, knowledge: Knowledge) -> None:
        mapping, ranges = knowledge.solved if isinstance(knowledge, SymbolTable) else ({}, knowledge)
        self._mapping: Mapping[str, Size] = mapping
        self._simplifier = Simplifier(ranges)

    def prove(self, predicate: Predicate) -> bool | None:
        """True or False if the predicate holds or fails for all values of the symbols, else None."""
        kind = predicate.kind
        try:
            a, b = self._normal(predicate.a), self._normal(predicate.b)
        except ValueError:
            # The knowledge implies a zero divisor, so the predicate has no meaning.
            return None
        if kind == "eq":
            return self._equal(a, b)
        if kind == "ne":
            equal = self._equal(a, b)
            return None if equal is None else not equal
        if kind == "lt":
            return self._at_most(add(a, 1), b)
        if kind == "le":
            return self._at_most(a, b)
        if kind == "divides":
            return self._divides(a, b)
        assert_never(kind)

    def _normal(self, x: Size) -> Size:
        return self._simplifier.simplify(substitute(x, self._mapping))

    def _never_negative(self, x: Size) -> bool:
        return self._simplifier.facts.nonnegative(self._simplifier.simplify(x))

    def _equal(self, a: Size, b: Size) -> bool | None:
        difference = self._simplifier.simplify(add(a, mul(b, -1)))
        if isinstance(difference, int):
            return difference == 0
        if self._simplifier.simplify(_without_mods(difference)) == 0 or _without_mods(difference) == 0:
            return True
        constant = difference - _variable_part(difference)
        assert isinstance(constant, int)
        if constant % gcd(*[scale for factors, scale in summands(difference) if factors]):
            return False
        above, below = self._never_negative(difference), self._never_negative(mul(difference, -1))
        if above and below:
            return True
        unequal = (above and self._never_negative(add(difference, -1))) or (
            below and self._never_negative(add(mul(difference, -1), -1))
        )
        return False if unequal else None

    def _at_most(self, a: Size, b: Size) -> bool | None:
        if self._never_negative(add(b, mul(a, -1))):
            return True
        return False if self._never_negative(add(a, mul(b, -1), -1)) else None

    def _divides(self, a: Size, b: Size) -> bool | None:
        if a == 0:
            return self._equal(b, 0)
        if divide(b, a)[1] == 0:
            return True
        if self._never_negative(add(a, -1)):
            left = self._normal(mod(b, a))
        elif self._never_negative(add(mul(a, -1), -1)):
            left = self._normal(mod(b, mul(a, -1)))
        else:
            return None
        return self._equal(left, 0)


def _variable_part(x: Size) -> Size:
    return add(*[mul(monomial(factors), scale) for factors, scale in summands(x) if factors])


def _without_mods(x: Size) -> Size:
    """`x` with every remainder that is a factor of an addend written as a difference: `x % n = x - n*(x//n)`.

    In this form equal sums of quotients and remainders of one number cancel.
    """
    if isinstance(x, int) or x.is_polynomial:
        return x
    parts: list[Size] = []
    for factors, scale in summands(x):
        expanded: list[Size] = [
            _as_difference(factor) if isinstance(factor, Mod) else factor for factor in factors
        ]
        parts.append(mul(scale, *expanded))
    return add(*parts)


def _as_difference(x: Mod) -> Size:
    return _without_mods(x.dividend - mul(x.divisor, floordiv(x.dividend, x.divisor)))


def prove(predicate: Predicate, knowledge: Knowledge) -> bool | None:
    """True or False if the predicate holds or fails for all values that `knowledge` allows, else None.

    For many proofs from the same knowledge, one `Prover` is faster.
    """
    return Prover(knowledge).prove(predicate)


def known_equal(a: Size, b: Size, knowledge: Knowledge) -> bool:
    """True if `a == b` is proven."""
    return a == b or prove(Predicate("eq", a, b), knowledge) is True


def known_le(a: Size, b: Size, knowledge: Knowledge) -> bool:
    """True if `a <= b` is proven."""
    return a == b or prove(Predicate("le", a, b), knowledge) is True


def known_lt(a: Size, b: Size, knowledge: Knowledge) -> bool:
    """True if `a < b` is proven."""
    return prove(Predicate("lt", a, b), knowledge) is True


def known_divides(a: Size, b: Size, knowledge: Knowledge) -> bool:
    """True if `b` is proven to be a multiple of `a`."""
    return prove(Predicate("divides", a, b), knowledge) is True
