"""Sums and products of terms, expanded, and the division of polynomials."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from litz_ir.symbols.nodes import Factors, Product, Sum, monomial, ordered_sum
from litz_ir.symbols.term import Size, Symbol, Term

_MAX_EXPANDED_TERMS = 64
"""Most terms of a product of sums that is expanded, and most steps of a division of polynomials."""


def add(*xs: Size) -> Size:
    """The sum of the arguments; 0 for none."""
    gathered: dict[Term, int] = {}
    constant = 0
    for x in xs:
        constant += gather(gathered, x, 1)
    return sum_of(gathered, constant)


def mul(*xs: Size) -> Size:
    """The product of the arguments; 1 for none."""
    result: Size = 1
    for x in xs:
        result = multiply(result, x)
    return result


def product(sizes: Iterable[Size]) -> Size:
    """The product of the sizes; 1 for none."""
    return mul(*sizes)


def shifted(x: Term, by: int) -> Size:
    """`x + by`."""
    if type(x) is Sum:
        return ordered_sum(x.terms, x.constant + by)
    return ordered_sum(((x, 1),), by)


def subtract(a: Size, b: Size) -> Size:
    """`a - b`."""
    return add(a, mul(b, -1))


def multiply(a: Size, b: Size) -> Size:
    """`a * b`, expanded unless that makes too many terms."""
    if isinstance(a, int):
        return a * b if isinstance(b, int) else _scale(b, a)
    if isinstance(b, int):
        return _scale(a, b)
    if type(a) is not Sum and type(b) is not Sum:
        return monomial(factors_of(a) + factors_of(b))
    left, right = summands(a), summands(b)
    if len(left) * len(right) > _MAX_EXPANDED_TERMS:
        return monomial(factors_of(a) + factors_of(b))
    gathered: dict[Term, int] = {}
    constant = 0
    for term, factor in left:
        for other, own in right:
            constant += gather(gathered, monomial(term + other), factor * own)
    return sum_of(gathered, constant)


def _scale(term: Term, by: int) -> Size:
    if by == 1 or by == 0:
        return term if by else 0
    if type(term) is Sum:
        return ordered_sum(tuple([(part, factor * by) for part, factor in term.terms]), term.constant * by)
    return ordered_sum(((term, by),), 0)


def gather(gathered: dict[Term, int], x: Size, factor: int) -> int:
    """Add `x*factor` to the mapping and return its constant part."""
    if isinstance(x, int):
        return x * factor
    if type(x) is Sum:
        for term, own in x.terms:
            gathered[term] = gathered.get(term, 0) + own * factor
        return x.constant * factor
    gathered[x] = gathered.get(x, 0) + factor
    return 0


def sum_of(gathered: dict[Term, int], constant: int) -> Size:
    """The sum of `term*factor` over the mapping (zero factors allowed) and a constant."""
    items = [item for item in gathered.items() if item[1]]
    if len(items) > 1:
        items.sort(key=_item_key)
    return ordered_sum(tuple(items), constant)


def _item_key(item: tuple[Term, int]) -> str:
    return item[0].key


def factors_of(term: Term) -> Factors:
    """The factors of a product; any other term is its own only factor."""
    return term.factors if type(term) is Product else (term,)


def summands(x: Size) -> list[tuple[Factors, int]]:
    """`x` as a list of (factors, coefficient); a constant has no factors and comes last."""
    if isinstance(x, int):
        return [((), x)] if x else []
    if type(x) is not Sum:
        return [(factors_of(x), 1)]
    parts = [(factors_of(term), factor) for term, factor in x.terms]
    if x.constant:
        parts.append(((), x.constant))
    return parts


def without(factors: Factors, part: Factors) -> Factors | None:
    """`factors` without those of `part`, or None if some are missing."""
    if not part:
        return factors
    rest = list(factors)
    for factor in part:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def divide(a: Size, b: Size) -> tuple[Size, Size]:
    """Polynomials `(q, r)` with `a == q*b + r` for all values of the symbols, and no visible multiple of `b` in `r`.

    This is long division of polynomials with integer coefficients; the value of `r` may exceed that of `b`. If the
    division would make the dividend longer (`a` over a sum), the result is `(0, a)`. Raises ValueError if `b` is the
    constant 0.
    """
    if isinstance(b, int):
        if b == 0:
            raise ValueError(f"division of '{a}' by zero")
        return divmod(a, b) if isinstance(a, int) else _divide_by_int(a, b)
    if isinstance(a, int):
        return 0, a
    divisor = summands(b)
    if len(divisor) > 1:
        return _long_division(a, b, divisor)
    lead, scale = divisor[0]
    quotient: dict[Term, int] = {}
    rest: dict[Term, int] = {}
    whole = constant = 0
    for factors, coefficient in summands(a):
        if coefficient % scale or (reduced := without(factors, lead)) is None:
            constant += gather(rest, monomial(factors), coefficient)
        else:
            whole += gather(quotient, monomial(reduced), coefficient // scale)
    return sum_of(quotient, whole), sum_of(rest, constant)


def _divide_by_int(a: Term, b: int) -> tuple[Size, Size]:
    if type(a) is not Sum:
        return (mul(a, b), 0) if b in (1, -1) else (0, a)
    whole, constant = divmod(a.constant, b)
    shares = tuple([(term, factor // b) for term, factor in a.terms if not factor % b])
    if not shares and not whole:
        return 0, a
    rest = tuple([item for item in a.terms if item[1] % b])
    return ordered_sum(shares, whole), ordered_sum(rest, constant)


def _long_division(a: Size, b: Size, divisor: list[tuple[Factors, int]]) -> tuple[Size, Size]:
    """`divide` by a sum: cancel its leading monomial (graded, then by key) wherever it divides."""
    lead, scale = min(divisor, key=lambda part: (-len(part[0]), [factor.key for factor in part[0]]))
    quotient: Size = 0
    rest = a
    for _ in range(_MAX_EXPANDED_TERMS):
        for factors, coefficient in summands(rest):
            reduced = without(factors, lead)
            if reduced is not None and coefficient % scale == 0:
                share = multiply(monomial(reduced), coefficient // scale)
                break
        else:
            break
        quotient = add(quotient, share)
        rest = add(rest, mul(share, b, -1))
    return (quotient, rest) if len(summands(rest)) < len(summands(a)) else (0, a)


def common_factor(a: Size, b: Size) -> Size:
    """The greatest monomial, with a positive coefficient, that divides all summands of both; 1 for zeros."""
    scale = 0
    shared: Factors | None = None
    for factors, coefficient in summands(a) + summands(b):
        scale = gcd(scale, coefficient)
        if shared is None:
            shared = factors
        elif shared:
            common = []
            rest = list(factors)
            for factor in shared:
                if factor in rest:
                    rest.remove(factor)
                    common.append(factor)
            shared = tuple(common)
        if scale == 1 and not shared:
            return 1
    return multiply(scale or 1, monomial(shared or ()))


def coefficient(x: Size, name: str) -> Size | None:
    """The coefficient of a symbol in `x` as a linear function of it; 0 if absent, None if `x` is not linear."""
    if isinstance(x, int) or name not in x.free_symbols:
        return 0
    total: Size = 0
    for factors, scale in summands(x):
        touched = [factor for factor in factors if name in factor.free_symbols]
        if not touched:
            continue
        if len(touched) > 1 or type(touched[0]) is not Symbol:
            return None
        total = add(total, multiply(monomial(without(factors, (touched[0],)) or ()), scale))
    return total
