"""The kinds of terms that have parts, and the functions that make them of parts in canonical form.

Sums are kept expanded (`i*(a + b)` becomes `i*a + i*b`), so two equal polynomials are one object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

from litz_ir.errors import SymbolError
from litz_ir.symbols.interning import enter, interned
from litz_ir.symbols.term import ATOM, PRODUCT, SUM, Size, Term, evaluate, key_of, text_of

Factors: TypeAlias = "tuple[Term, ...]"


class Sum(Term):
    """`terms[0][0]*terms[0][1] + … + constant`; the terms are not sums and are sorted by key."""

    __slots__ = ("constant", "is_polynomial", "terms")
    terms: tuple[tuple[Term, int], ...]
    """Addends without their constant factors, and these factors."""
    constant: int
    """The constant addend."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return ordered_sum, (self.terms, self.constant)

    def _fields(self) -> tuple[Any, ...]:
        return (self.terms, self.constant)

    def _make_key(self) -> str:
        return "~s" + "+".join([f"{term.key}*{factor}" for term, factor in self.terms]) + f"+{self.constant}"

    def children(self) -> Iterable[Term]:
        return [term for term, _ in self.terms]

    def _text(self, strength: int) -> str:
        constant = self.constant
        # `63 - i0` reads better than `-i0 + 63`.
        parts = [str(constant)] if constant > 0 and self.terms[0][1] < 0 else []
        tail = [] if parts or not constant else [f" {'-' if constant < 0 else '+'} {abs(constant)}"]
        for term, factor in self.terms:
            size = abs(factor)
            bare = size == 1 and (factor > 0 or bool(parts))
            text = term._text(SUM if bare else PRODUCT) + ("" if size == 1 else f"*{size}")
            sign = "-" if factor < 0 else "+"
            parts.append(f" {sign} {text}" if parts else text if factor > 0 else f"-{text}")
        text = "".join(parts + tail)
        if strength == SUM:
            return text
        single = len(self.terms) == 1 and not constant and self.terms[0][1] > 0
        return text if single and strength == PRODUCT else f"({text})"

    def _evaluate(self, env: Mapping[str, int]) -> int:
        total = self.constant
        for term, factor in self.terms:
            total += term._evaluate(env) * factor
        return total


class Product(Term):
    """The product of two or more factors, sorted by key; a constant factor belongs to the enclosing sum."""

    __slots__ = ("factors", "is_polynomial")
    factors: Factors
    """The factors, of which one may occur several times."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return monomial, (self.factors,)

    def _fields(self) -> tuple[Any, ...]:
        return (self.factors,)

    def _make_key(self) -> str:
        return "~p" + "*".join([factor.key for factor in self.factors])

    def children(self) -> Iterable[Term]:
        return self.factors

    def _text(self, strength: int) -> str:
        text = "*".join([factor._text(ATOM) for factor in self.factors])
        return f"({text})" if strength == ATOM else text

    def _evaluate(self, env: Mapping[str, int]) -> int:
        result = 1
        for factor in self.factors:
            result *= factor._evaluate(env)
        return result


class Quotient(Term):
    """Base of floor division and remainder."""

    __slots__ = ("dividend", "divisor")
    is_polynomial = False
    dividend: Size
    divisor: Size
    sign: ClassVar[str]

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return quotient, (type(self), self.dividend, self.divisor)

    def _fields(self) -> tuple[Any, ...]:
        return (self.dividend, self.divisor)

    def _make_key(self) -> str:
        return f"~{self.sign}({key_of(self.dividend)},{key_of(self.divisor)})"

    def children(self) -> Iterable[Term]:
        return [part for part in (self.dividend, self.divisor) if isinstance(part, Term)]

    def _text(self, strength: int) -> str:
        # `//` and `%` associate to the left as `*` does; parentheses make that explicit.
        text = f"{text_of(self.dividend, ATOM)}{self.sign}{text_of(self.divisor, ATOM)}"
        return text if strength == SUM else f"({text})"


class FloorDiv(Quotient):
    """`dividend // divisor`, rounded down."""

    __slots__ = ()
    sign = "//"

    def _evaluate(self, env: Mapping[str, int]) -> int:
        divisor = evaluate(self.divisor, env)
        if divisor == 0:
            raise SymbolError(f"division by zero in '{self}': the divisor '{self.divisor}' is 0")
        return evaluate(self.dividend, env) // divisor


class Mod(Quotient):
    """`dividend % divisor`, with the divisor's sign."""

    __slots__ = ()
    sign = " % "

    def _evaluate(self, env: Mapping[str, int]) -> int:
        divisor = evaluate(self.divisor, env)
        if divisor == 0:
            raise SymbolError(f"remainder by zero in '{self}': the divisor '{self.divisor}' is 0")
        return evaluate(self.dividend, env) % divisor


class Extremum(Term):
    """Base of minimum and maximum."""

    __slots__ = ("args",)
    is_polynomial = False
    args: tuple[Size, ...]
    function: ClassVar[str]

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return extremum, (type(self), self.args)

    def _fields(self) -> tuple[Any, ...]:
        return (self.args,)

    def _make_key(self) -> str:
        return f"~{self.function}(" + ",".join([key_of(arg) for arg in self.args]) + ")"

    def children(self) -> Iterable[Term]:
        return [arg for arg in self.args if isinstance(arg, Term)]

    def _text(self, strength: int) -> str:
        return f"{self.function}(" + ", ".join([text_of(arg, SUM) for arg in self.args]) + ")"


class Min(Extremum):
    """The least of two or more sizes."""

    __slots__ = ()
    function = "min"

    def _evaluate(self, env: Mapping[str, int]) -> int:
        return min([evaluate(arg, env) for arg in self.args])


class Max(Extremum):
    """The greatest of two or more sizes."""

    __slots__ = ()
    function = "max"

    def _evaluate(self, env: Mapping[str, int]) -> int:
        return max([evaluate(arg, env) for arg in self.args])


# Setters of the slots, as in `litz_ir.symbols.term`.
_set_terms: Callable[[Sum, tuple[tuple[Term, int], ...]], None] = Sum.__dict__["terms"].__set__
_set_constant: Callable[[Sum, int], None] = Sum.__dict__["constant"].__set__
_set_sum_polynomial: Callable[[Sum, bool], None] = Sum.__dict__["is_polynomial"].__set__
_set_factors: Callable[[Product, Factors], None] = Product.__dict__["factors"].__set__
_set_product_polynomial: Callable[[Product, bool], None] = Product.__dict__["is_polynomial"].__set__
_set_dividend: Callable[[Quotient, Size], None] = Quotient.__dict__["dividend"].__set__
_set_divisor: Callable[[Quotient, Size], None] = Quotient.__dict__["divisor"].__set__
_set_args: Callable[[Extremum, tuple[Size, ...]], None] = Extremum.__dict__["args"].__set__


def ordered_sum(terms: tuple[tuple[Term, int], ...], constant: int) -> Size:
    """The sum of `term*factor` and a constant; the terms are sorted, distinct, and no factor is zero."""
    if not constant and (not terms or (len(terms) == 1 and terms[0][1] == 1)):
        return terms[0][0] if terms else 0
    if not terms:
        return constant
    slot = (terms, constant)
    result: Sum | None = interned(slot)
    if result is None:
        result = Sum.__new__(Sum)
        _set_terms(result, terms)
        _set_constant(result, constant)
        _set_sum_polynomial(result, all(term.is_polynomial for term, _ in terms))
        enter(slot, result)
    return result


def monomial(factors: Factors) -> Size:
    """The product of factors that are neither products nor sums to be expanded; 1 for none."""
    if not factors:
        return 1
    if len(factors) == 1:
        return factors[0]
    ordered = tuple(sorted(factors, key=key_of))
    slot = ("*", ordered)
    result: Product | None = interned(slot)
    if result is None:
        result = Product.__new__(Product)
        _set_factors(result, ordered)
        _set_product_polynomial(result, all(factor.is_polynomial for factor in ordered))
        enter(slot, result)
    return result


def quotient(kind: type[Quotient], dividend: Size, divisor: Size) -> Term:
    """The floor division or remainder of two operands, to which no rule applies."""
    slot = (kind.sign, dividend, divisor)
    result: Quotient | None = interned(slot)
    if result is None:
        result = kind.__new__(kind)
        _set_dividend(result, dividend)
        _set_divisor(result, divisor)
        enter(slot, result)
    return result


def extremum(kind: type[Extremum], args: tuple[Size, ...]) -> Term:
    """The minimum or maximum of two or more arguments, none of which is of that kind or differs from another one by a
    constant.
    """
    ordered = tuple(sorted(args, key=key_of))
    slot = (kind.function, ordered)
    result: Extremum | None = interned(slot)
    if result is None:
        result = kind.__new__(kind)
        _set_args(result, ordered)
        enter(slot, result)
    return result
