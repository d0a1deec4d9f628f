"""Range-aware rewriting of index terms, which simplifies the index maps of reshapes.

The rules by which terms are made hold for all values. Here ranges decide further ones: `(i*n + j)//n` is `i` and
`(i*n + j) % n` is `j` if `0 <= j < n`; the quotient of a smaller dividend is 0 and its remainder the dividend; nested
quotients become one; a quotient and a remainder of one dividend are combined again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd

from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.facts import Facts, linear_in
from litz_ir.symbols.nodes import FloorDiv, Max, Min, Mod, Product, Sum, monomial
from litz_ir.symbols.polynomials import add, common_factor, divide, mul, summands
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.term import Range, Size, Symbol, Term


def simplify(x: Size, ranges: Mapping[str, Range]) -> Size:
    """`x` in a simpler form that has the same value wherever the symbols lie in their ranges.

    For many terms over the same ranges, one `Simplifier` is faster.
    """
    if isinstance(x, int):
        return x
    if x.is_polynomial and not any(_fixed(ranges.get(name)) for name in x.free_symbols):
        return x
    return Simplifier(ranges).simplify(x)


def _fixed(known: Range | None) -> bool:
    return known is not None and known.low is not None and known.low == known.high


class Simplifier:
    """`simplify` under fixed ranges, with a cache of results.

    A term that has a value has no zero divisor, so a divisor that is not negative counts as positive.
    """

    __slots__ = ("_done", "facts")

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.facts = Facts(ranges)
        self._done: dict[Term, Size] = {}

    def simplify(self, x: Size) -> Size:
        """`x` in a simpler form of equal value."""
        if isinstance(x, int):
            return x
        done = self._done.get(x)
        if done is None:
            done = self._done[x] = self._rewrite(x)
            if not isinstance(done, int):
                self._done[done] = done
        return done

    def _rewrite(self, x: Term) -> Size:
        if isinstance(x, Symbol):
            known = self.facts.ranges.get(x.name)
            return x if known is None or known.low is None or known.low != known.high else known.low
        if isinstance(x, Sum):
            parts = [self.simplify(term) for term, _ in x.terms]
            if all(part is term for part, (term, _) in zip(parts, x.terms)):
                return self._joined(x)
            scaled = [mul(part, factor) for part, (_, factor) in zip(parts, x.terms)]
            return self._joined(add(x.constant, *scaled))
        if isinstance(x, Product):
            return mul(*[self.simplify(factor) for factor in x.factors])
        if isinstance(x, (FloorDiv, Mod)):
            divisor = self.simplify(x.divisor)
            if divisor == 0:
                # It has no value, so no program depends on it.
                return x
            dividend = self.simplify(x.dividend)
            if dividend == x.dividend and divisor == x.divisor:
                return self._reduced_quotient(x) if isinstance(x, FloorDiv) else self._reduced_remainder(x)
            return (self._floordiv if isinstance(x, FloorDiv) else self._mod)(dividend, divisor)
        if isinstance(x, Min):
            least = minimum(*[self.simplify(arg) for arg in x.args])
            return minimum(*self._least(least.args, 1)) if isinstance(least, Min) else least
        if isinstance(x, Max):
            greatest = maximum(*[self.simplify(arg) for arg in x.args])
            return maximum(*self._least(greatest.args, -1)) if isinstance(greatest, Max) else greatest
        return x

    def _least(self, args: Iterable[Size], sign: int) -> Iterable[Size]:
        """The arguments without those that another one never exceeds (times `sign`)."""
        remaining: list[Size] = []
        for arg in args:
            if any(self.facts.nonnegative(mul(arg - other, sign)) for other in remaining):
                continue
            remaining = [other for other in remaining if not self.facts.nonnegative(mul(other - arg, sign))]
            remaining.append(arg)
        return remaining

    def _floordiv(self, a: Size, b: Size) -> Size:
        """`a // b` of simplified operands."""
        whole, rest = divide(a, b)
        if whole != 0:
            return self._joined(add(whole, self._floordiv(rest, b)))
        plain = floordiv(a, b)
        if not isinstance(plain, FloorDiv):
            # A structural rule applied; its result is smaller and may contain another quotient.
            return self.simplify(plain)
        return self._reduced_quotient(plain)

    def _reduced_quotient(self, x: FloorDiv) -> Size:
        """A quotient of simplified operands rewritten by ranges, after no structural rule applied."""
        a, b = x.dividend, x.divisor
        constant = self.facts.constant_quotient(a, b)
        if constant is not None:
            return constant
        for step in self._steps(a, b):
            high, low, rest_divisor = self._cut(a, b, step)
            part = self.facts.constant_quotient(low, step)
            if part is not None and self.facts.nonnegative(rest_divisor):
                return self._floordiv(add(high, part), rest_divisor)
        if isinstance(a, FloorDiv) and self.facts.nonnegative(b):
            return self._floordiv(a.dividend, mul(a.divisor, b))
        if isinstance(a, Mod) and self.facts.nonnegative(b) and self.facts.nonnegative(a.divisor):
            times, left = divide(a.divisor, b)
            if left == 0:
                return self._mod(self._floordiv(a.dividend, b), times)
        return x

    def _mod(self, a: Size, b: Size) -> Size:
        """`a % b` of simplified operands."""
        plain = mod(a, b)
        if not isinstance(plain, Mod):
            return self.simplify(plain)
        return self._reduced_remainder(plain)

    def _reduced_remainder(self, x: Mod) -> Size:
        """A remainder of simplified operands rewritten by ranges, after no structural rule applied."""
        a, b = x.dividend, x.divisor
        constant = self.facts.constant_quotient(a, b)
        if constant is not None:
            return a - mul(b, constant) if constant else a
        for step in self._steps(a, b):
            high, low, rest_divisor = self._cut(a, b, step)
            part = self.facts.constant_quotient(low, step)
            if part is not None and self.facts.nonnegative(rest_divisor):
                outer = mul(self._mod(add(high, part), rest_divisor), step)
                return self._joined(add(outer, low, mul(step, -part)))
        return x

    def _steps(self, a: Size, b: Size) -> list[Size]:
        """Factors that `b` has in common with some addend of `a`, the coarsest first."""
        if isinstance(a, int):
            return []
        if isinstance(b, int):
            shared = {gcd(scale, b) for factors, scale in summands(a) if factors}
            return [step for step in sorted(shared, reverse=True) if 1 < step < b]
        steps = {common_factor(mul(monomial(factors), scale), b) for factors, scale in summands(a) if factors}
        steps -= {1, b}
        return sorted(steps, key=lambda step: (-_degree(step), str(step)))

    def _cut(self, a: Size, b: Size, step: Size) -> tuple[Size, Size, Size]:
        """`(high, low, divisor)` with `a == high*step + low` and `b == divisor*step`."""
        high, low = divide(a, step)
        return high, low, divide(b, step)[0]

    def _joined(self, x: Size) -> Size:
        """The sum with quotients and remainders of one dividend combined."""
        while isinstance(x, Sum) and not x.is_polynomial:
            better = self._one_join(x)
            if better is None:
                return x
            x = better
        return x

    def _one_join(self, x: Sum) -> Size | None:
        before = _cost(x)
        for candidate in self._joins(x):
            if _cost(candidate) < before:
                return candidate
        return None

    def _joins(self, x: Sum) -> Iterable[Size]:
        """Yield other forms of the sum, each with one quotient or remainder rewritten."""
        for part in _divisions(x):
            split = linear_in(x, part)
            if split is None:
                continue
            slope, rest = split
            dividend, divisor = part.dividend, part.divisor
            if isinstance(part, FloorDiv):
                # c*x - c*n*(x//n) = c*(x % n)
                share, left = divide(mul(slope, -1), divisor)
                if left == 0:
                    yield add(rest, mul(share, self._mod(dividend, divisor) - dividend))
                continue
            # c*(x % n) = c*x - c*n*(x//n), where the quotient then cancels
            quotient = self._floordiv(dividend, divisor)
            yield add(rest, mul(slope, dividend), mul(slope, divisor, quotient, -1))
            if isinstance(dividend, FloorDiv):
                yield from self._nested(slope, rest, dividend, divisor)

    def _nested(self, scale: Size, rest: Size, inner: FloorDiv, outer: Size) -> Iterable[Size]:
        """`c*n*((x//n) % m) + c*(x % n) = c*(x % (n*m))` for `m` that is not negative."""
        share, left = divide(scale, inner.divisor)
        if left == 0 and self.facts.nonnegative(outer):
            fine = self._mod(inner.dividend, inner.divisor)
            joined = self._mod(inner.dividend, mul(inner.divisor, outer))
            yield add(rest, mul(share, fine, -1), mul(share, joined))


def _degree(step: Size) -> int:
    return max((len(factors) for factors, _ in summands(step)), default=0)


def _divisions(x: Size) -> list[FloorDiv | Mod]:
    """The distinct quotients and remainders among the factors of a sum."""
    factors = dict.fromkeys([factor for factors, _ in summands(x) for factor in factors])
    return [factor for factor in factors if isinstance(factor, (FloorDiv, Mod))]


def _cost(x: Size) -> tuple[int, int]:
    """Number of divisions in a sum, then of summands; combining has to lower it."""
    return len(_divisions(x)), len(summands(x))
