"""Floor division and remainders of terms."""

from __future__ import annotations

from math import gcd

from litz_ir.symbols.nodes import FloorDiv, Mod, Sum, monomial, ordered_sum, quotient
from litz_ir.symbols.polynomials import (
    add,
    common_factor,
    divide,
    gather,
    mul,
    multiply,
    sum_of,
    summands,
    without,
)
from litz_ir.symbols.term import Size, Term


def floordiv(a: Size, b: Size) -> Size:
    """`a // b`, rounded down; raises ValueError if `b` is the constant 0."""
    if isinstance(b, int):
        if isinstance(a, int):
            if b == 0:
                raise ValueError(f"division of {a} by zero")
            return a // b
        if b < 0:
            return floordiv(mul(a, -1), -b)
        if b == 1:
            return a
    whole, rest = divide(a, b)
    return add(whole, _floordiv_rest(rest, b)) if whole != 0 else _floordiv_rest(rest, b)


def _floordiv_rest(a: Size, b: Size) -> Size:
    """`a // b` where `a` has no addend that `b` divides; a constant `b` is at least 2."""
    if isinstance(a, int):
        if a == 0 or isinstance(b, int):
            return a // b if isinstance(b, int) else 0
        return quotient(FloorDiv, a, b)
    if isinstance(b, int):
        return _floordiv_int(a, b)
    shared = common_factor(a, b)
    if shared != 1:
        return floordiv(divide(a, shared)[0], divide(b, shared)[0])
    return quotient(FloorDiv, a, b)


def _floordiv_int(a: Term, b: int) -> Size:
    """`a // b` for a constant `b >= 2` that divides no addend of `a`, whose constant is in `[0, b)`."""
    inner, constant = a, 0
    if type(a) is Sum:
        constant = a.constant
        shared = gcd(b, *[factor for _, factor in a.terms])
        if shared != 1:
            # floor((g*x + c) / (g*m)) = floor((x + floor(c/g)) / m) for g > 0
            shares = tuple([(term, factor // shared) for term, factor in a.terms])
            return floordiv(ordered_sum(shares, constant // shared), b // shared)
        if len(a.terms) == 1 and a.terms[0][1] == 1:
            inner = a.terms[0][0]
    if type(inner) is FloorDiv and isinstance(inner.divisor, int):
        return floordiv(add(inner.dividend, constant * inner.divisor), inner.divisor * b)
    if type(a) is Mod and isinstance(a.divisor, int) and a.divisor % b == 0:
        return mod(floordiv(a.dividend, b), a.divisor // b)
    return quotient(FloorDiv, a, b)


def mod(a: Size, b: Size) -> Size:
    """`a % b`, with the sign of `b`; raises ValueError if `b` is the constant 0."""
    if isinstance(b, int):
        if b == 0:
            raise ValueError(f"remainder of '{a}' by zero")
        if isinstance(a, int):
            return a % b
        if b < 0:
            return mul(mod(mul(a, -1), -b), -1)
        return _mod_int(_without_inner_mods(a, b), b)
    rest = divide(_without_inner_mods(a, b), b)[1]
    if rest == 0:
        return 0
    shared = common_factor(rest, b)
    if shared != 1:
        return mul(mod(divide(rest, shared)[0], divide(b, shared)[0]), shared)
    return quotient(Mod, rest, b)


def _without_inner_mods(a: Size, b: Size) -> Size:
    """A size that is congruent to `a` modulo `b`: `(x % m)*c` is `x*c` where `b` divides `m*c`."""
    if isinstance(a, int) or a.is_polynomial:
        return a
    gathered: dict[Term, int] = {}
    constant = 0
    changed = False
    for factors, coefficient in summands(a):
        reduced_addend = multiply(monomial(factors), coefficient)
        for factor in factors:
            if type(factor) is Mod:
                others = multiply(monomial(without(factors, (factor,)) or ()), coefficient)
                if divide(mul(others, factor.divisor), b)[1] == 0:
                    reduced_addend = mul(others, factor.dividend)
                    changed = True
                    break
        constant += gather(gathered, reduced_addend, 1)
    return _without_inner_mods(sum_of(gathered, constant), b) if changed else a


def _mod_int(a: Size, b: int) -> Size:
    """`a % b` for a constant `b >= 1`."""
    if isinstance(a, int) or b == 1:
        return a % b if isinstance(a, int) else 0
    if type(a) is not Sum:
        return quotient(Mod, a, b)
    constant = a.constant % b
    # Coefficients shrink but keep their sign, so that `s - i` stays recognisable as a difference.
    small = [(term, factor % b if factor > 0 else -(-factor % b)) for term, factor in a.terms]
    rest = tuple([item for item in small if item[1]])
    shared = gcd(b, *[factor for _, factor in rest])
    if not rest or shared == 1:
        remaining = ordered_sum(rest, constant)
        return remaining if isinstance(remaining, int) else quotient(Mod, remaining, b)
    # (g*x + g*q + r) % (g*m) = g*((x + q) % m) + r for 0 <= r < g
    shares = tuple([(term, factor // shared) for term, factor in rest])
    inner = _mod_int(ordered_sum(shares, constant // shared), b // shared)
    return add(mul(inner, shared), constant % shared)


def cdiv(a: Size, b: Size) -> Size:
    """`a / b` rounded up, for positive `b`: `(a + b - 1) // b`."""
    return floordiv(add(a, b, -1), b)
