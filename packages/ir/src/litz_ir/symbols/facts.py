"""Facts that follow from the ranges of symbols: intervals and signs of terms.

Intervals suffice for static shapes. Symbolic ones need more: that `s1 - 1 - i1` is not negative follows only from `i1
< s1`. `Facts.nonnegative` proves such claims by replacing one quantity after another by its worst case, which leaves a
polynomial over sizes. It answers True only for what holds, and False for "not proven".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from litz_ir.symbols.nodes import FloorDiv, Max, Min, Mod, Sum, monomial
from litz_ir.symbols.polynomials import add, common_factor, divide, mul, summands, without
from litz_ir.symbols.ranges import ANY, Interval, interval_bounds
from litz_ir.symbols.term import Atom, Range, Size, Symbol, Term

_MAX_STEPS = 12
"""Most replacements of quantities by their worst case in one proof of a sign, which bounds its time."""

_MAX_DEPTH = 3
"""Most case distinctions and worst cases inside one another in a proof of a sign, which bounds its time."""


def _implied(ranges: Mapping[str, Range]) -> Iterator[tuple[Term, int]]:
    """Lower bounds on terms that follow from ranges: bounds of the sizes that limit indices.

    If an index below `s0*s1` exists, `s0*s1` is at least 1, and so are its factors if none is negative.
    """
    memo: dict[Term, Interval] = {}
    for known in ranges.values():
        if known.below is None or known.low is None:
            continue
        limit, least = known.below, known.low + 1
        yield limit, least
        if isinstance(limit, Sum) and len(limit.terms) == 1:
            # factor*term + constant >= least
            term, factor = limit.terms[0]
            if factor < 0:
                continue
            least = -((limit.constant - least) // factor)
            yield term, least
            limit = term
        if least >= 1:
            content = common_factor(limit, limit)
            rest = divide(limit, content)[0]
            parts = [factor for factors, _ in summands(content) for factor in factors]
            if isinstance(rest, Term):
                parts.append(rest)
            lows = [interval_bounds(part, ranges, memo)[0] for part in parts]
            if all(low is not None and low >= 0 for low in lows):
                yield from [(part, 1) for part in parts]


class Facts:
    """Ranges of symbols and a cache of facts derived from them; created for one call or one pass."""

    __slots__ = ("_intervals", "_signs", "ranges")

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.ranges = ranges
        self._intervals: dict[Term, Interval] = {}
        self._signs: dict[Term, bool] = {}
        if any(known.below is not None for known in ranges.values()):
            self._learn(list(_implied(ranges)))

    def _learn(self, lows: list[tuple[Term, int]]) -> None:
        """Add lower bounds on terms: those on symbols first, since bounds of other terms follow from them."""
        tightened = dict(self.ranges)
        for term, least in lows:
            if isinstance(term, Symbol):
                before = tightened.get(term.name, ANY)
                if before.low is None or before.low < least:
                    tightened[term.name] = replace(before, low=least)
        self.ranges = tightened
        for term, least in lows:
            low, high = self.interval(term)
            if not isinstance(term, Symbol) and (low is None or low < least):
                self._intervals[term] = least, high

    def interval(self, x: Size) -> Interval:
        """Lowest and highest value of `x`; None for an open end."""
        return interval_bounds(x, self.ranges, self._intervals)

    def nonnegative(self, x: Size) -> bool:
        """True if `x >= 0` is proven."""
        return self._nonnegative(x, _MAX_DEPTH)

    def constant_quotient(self, a: Size, b: Size) -> int | None:
        """The value of `a // b` if it is proven to be constant and `b` to be positive, else None."""
        low, high = self.interval(a)
        if isinstance(b, int):
            if b <= 0:
                return None
            if low is not None and high is not None:
                return low // b if low // b == high // b else None
        return self._quotient_by_signs(a, b)

    def _quotient_by_signs(self, a: Size, b: Size) -> int | None:
        for quotient in (0, -1):
            start = mul(b, quotient)
            if self.nonnegative(a - start) and self.nonnegative(add(b, -1) + start - a):
                return quotient
        return None

    def _nonnegative(self, x: Size, depth: int) -> bool:
        if isinstance(x, int):
            return x >= 0
        low, high = self.interval(x)
        if low is not None and low >= 0:
            return True
        if high is not None and high < 0:
            return False
        known = self._signs.get(x)
        if known is None:
            known = depth > 0 and (self._by_cases(x, depth) or self._by_worst_case(x, depth))
            if known or depth == _MAX_DEPTH:
                self._signs[x] = known
        return known

    def _by_cases(self, x: Term, depth: int) -> bool:
        """Prove a sign by replacing one minimum or maximum by all its arguments, or by one that is a worse case."""
        for factors, _ in summands(x):
            for factor in factors:
                if not isinstance(factor, (Min, Max)) or (split := linear_in(x, factor)) is None:
                    continue
                slope, rest = split
                cases = [self._nonnegative(add(rest, mul(slope, arg)), depth - 1) for arg in factor.args]
                if all(cases):
                    return True
                worse = slope if isinstance(factor, Max) else mul(slope, -1)
                return any(cases) and self._nonnegative(worse, depth - 1)
        return False

    def _by_worst_case(self, x: Term, depth: int) -> bool:
        """Prove a sign by replacing quantities in `x` by their worst case, the most dependent first."""
        current: Size = x
        for _ in range(_MAX_STEPS):
            following = self._one_worst_case(current, depth)
            if following is None:
                break
            if isinstance(following, int):
                return following >= 0
            low = self.interval(following)[0]
            if low is not None and low >= 0:
                return True
            current = following
        return self._nonnegative_from_lows(current)

    def _one_worst_case(self, x: Size, depth: int) -> Size | None:
        """A size with one quantity less that is negative if `x` is; None if no quantity can be replaced."""
        for quantity in self._quantities(x):
            split = linear_in(x, quantity)
            if split is None:
                continue
            slope, rest = split
            if self._nonnegative(slope, depth - 1):
                least = self._least(quantity, slope, rest, rising=True)
            elif self._nonnegative(mul(slope, -1), depth - 1):
                least = self._least(quantity, slope, rest, rising=False)
            else:
                continue
            if least is not None:
                return least
        return None

    def _quantities(self, x: Size) -> list[Term]:
        """Terms in `x` that may be replaced: first those that depend on indices, then indices, then sizes."""
        found: dict[Term, int] = {}
        for factors, _ in summands(x):
            for factor in factors:
                if isinstance(factor, Symbol):
                    known = self.ranges.get(factor.name, ANY)
                    if known.below is not None:
                        found[factor] = 1
                    elif known.high is not None and len(factors) > 1:
                        found[factor] = 3
                elif isinstance(factor, (Mod, FloorDiv, Atom)):
                    found[factor] = 0 if self._depends_on_index(factor) else 2
        return sorted(found, key=lambda term: (found[term], term.key))

    def _depends_on_index(self, x: Term) -> bool:
        if isinstance(x, Atom):
            return True
        known = [self.ranges.get(name, ANY) for name in x.free_symbols]
        return any(each.below is not None or each.high is not None for each in known)

    def _least(self, quantity: Term, slope: Size, rest: Size, rising: bool) -> Size | None:
        """A size that is negative if `slope*quantity + rest` is; `rising` is true for a slope that is not negative."""
        if isinstance(quantity, FloorDiv):
            # A quotient that exists has a divisor other than zero.
            divisor = quantity.divisor
            if not self.nonnegative(divisor):
                return None
            # dividend - divisor + 1 <= divisor*quantity <= dividend
            worst = quantity.dividend - divisor + 1 if rising else quantity.dividend
            share, left = divide(slope, divisor)
            if left == 0:
                return add(rest, mul(worst, share))
            if isinstance(slope, Term) and self.interval(quantity)[0 if rising else 1] is not None:
                return add(rest, mul(slope, self.interval(quantity)[0 if rising else 1] or 0))
            # An integer is not negative if its product with the positive divisor exceeds -divisor.
            return add(mul(rest, divisor), mul(worst, slope), divisor, -1)
        extreme = self._lowest(quantity) if rising else self._highest(quantity)
        return None if extreme is None else add(rest, mul(slope, extreme))

    def _lowest(self, quantity: Term) -> int | None:
        if isinstance(quantity, Mod) and self.nonnegative(quantity.divisor):
            return 0
        return self.interval(quantity)[0]

    def _highest(self, quantity: Term) -> Size | None:
        if isinstance(quantity, Mod) and self.nonnegative(quantity.divisor):
            return add(quantity.divisor, -1)
        known: Range | None = None
        if isinstance(quantity, Symbol):
            known = self.ranges.get(quantity.name)
        elif isinstance(quantity, Atom):
            known = quantity.bounds()
        if known is not None and known.below is not None:
            return add(known.below, -1)
        return self.interval(quantity)[1]

    def _nonnegative_from_lows(self, x: Size) -> bool:
        """True if no coefficient is negative once every factor counts from its lowest value."""
        shifted: list[Size] = []
        for factors, scale in summands(x):
            lows = [self.interval(factor)[0] for factor in factors]
            if None in lows or any(isinstance(factor, Sum) for factor in factors):
                return False
            # Each factor now stands for its distance from its lowest value.
            shifted.append(mul(scale, *[add(factor, low or 0) for factor, low in zip(factors, lows)]))
        # A sum among the factors (a product too long to expand) would hide the signs inside it.
        return all(
            scale >= 0 and not any(isinstance(factor, Sum) for factor in factors)
            for factors, scale in summands(add(*shifted))
        )


def linear_in(x: Size, quantity: Term) -> tuple[Size, Size] | None:
    """`(slope, rest)` with `x == slope*quantity + rest`; None if the quantity occurs in a higher power.

    Occurrences inside other quantities count as part of those.
    """
    slope: list[Size] = []
    rest: list[Size] = []
    for factors, scale in summands(x):
        others = without(factors, (quantity,))
        if others is None:
            rest.append(mul(monomial(factors), scale))
        elif quantity in others:
            return None
        else:
            slope.append(mul(monomial(others), scale))
    return add(*slope), add(*rest)
