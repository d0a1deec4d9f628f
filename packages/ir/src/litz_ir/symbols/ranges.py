"""Interval arithmetic: bounds of a term's value, given ranges of its symbols."""

from __future__ import annotations

from collections.abc import Mapping

from litz_ir.symbols.nodes import FloorDiv, Max, Min, Mod, Product, Sum
from litz_ir.symbols.term import Atom, Range, Size, Symbol, Term

__all__ = ["ANY", "Range", "bounds", "extent", "interval_bounds", "widest"]

ANY = Range()
"""The range of a symbol without known bounds."""

Interval = tuple[int | None, int | None]
"""Lower and upper bound of a value, inclusive; None for an open end."""


def extent(size: Size) -> Range:
    """The range of an index along an axis of `size`: `0 <= index < size`.

    An axis of size 0 has no index, and gets the range of size 1.
    """
    return Range(0, max(size - 1, 0)) if isinstance(size, int) else Range(0, None, size)


def bounds(x: Size, ranges: Mapping[str, Range]) -> Range:
    """The narrowest range that interval arithmetic finds for `x`; a symbol without a range may have any value.

    A term without a value (a division by zero) may get any range.
    """
    if isinstance(x, int):
        return Range(x, x)
    if isinstance(x, Symbol):
        return ranges.get(x.name, ANY)
    low, high = interval_bounds(x, ranges, {})
    return Range(low, high)


def is_natural(x: Size, ranges: Mapping[str, Range]) -> bool:
    """True if interval arithmetic proves `x >= 0`, as a stride has to be."""
    low = bounds(x, ranges).low
    return low is not None and low >= 0


def interval_bounds(x: Size, ranges: Mapping[str, Range], memo: dict[Term, Interval]) -> Interval:
    """`bounds` as a pair; `memo` caches the bounds of sub-terms."""
    if isinstance(x, int):
        return x, x
    if isinstance(x, Symbol):
        return _numeric(ranges.get(x.name, ANY), ranges, memo)
    done = memo.get(x)
    if done is None:
        done = memo[x] = _compound(x, ranges, memo)
    return done


def _numeric(known: Range, ranges: Mapping[str, Range], memo: dict[Term, Interval]) -> Interval:
    """The ends of a range, with `below` replaced by the highest value that it can have."""
    if known.below is None:
        return known.low, known.high
    limit = interval_bounds(known.below, ranges, memo)[1]
    if limit is None or (known.high is not None and known.high < limit):
        return known.low, known.high
    return known.low, limit - 1


def _compound(x: Term, ranges: Mapping[str, Range], memo: dict[Term, Interval]) -> Interval:
    if isinstance(x, Sum):
        low: int | None = x.constant
        high: int | None = x.constant
        for term, factor in x.terms:
            first, last = interval_bounds(term, ranges, memo)
            if factor < 0:
                first, last = last, first
            low = None if low is None or first is None else low + first * factor
            high = None if high is None or last is None else high + last * factor
        return low, high
    if isinstance(x, Product):
        result: Interval = (1, 1)
        for factor_term in x.factors:
            result = _times(result, interval_bounds(factor_term, ranges, memo))
        # A square is never negative, whatever its root.
        if result[0] is None and len(set(x.factors)) == 1 and len(x.factors) % 2 == 0:
            return 0, result[1]
        return result
    if isinstance(x, FloorDiv):
        return _quotient(interval_bounds(x.dividend, ranges, memo), interval_bounds(x.divisor, ranges, memo))
    if isinstance(x, Mod):
        return _remainder(interval_bounds(x.dividend, ranges, memo), interval_bounds(x.divisor, ranges, memo))
    if isinstance(x, (Min, Max)):
        return _extremum(x, [interval_bounds(arg, ranges, memo) for arg in x.args])
    if isinstance(x, Atom):
        known = x.bounds()
        return (None, None) if known is None else _numeric(known, ranges, memo)
    raise TypeError(f"unknown kind of term: {type(x).__name__}")


def widest(a: Interval, b: Interval) -> Interval:
    """The smallest interval that contains both."""
    return (
        None if a[0] is None or b[0] is None else min(a[0], b[0]),
        None if a[1] is None or b[1] is None else max(a[1], b[1]),
    )


def _times(a: Interval, b: Interval) -> Interval:
    if a == (0, 0) or b == (0, 0):
        return 0, 0
    (a_low, a_high), (b_low, b_high) = a, b
    if a_low is not None and a_high is not None and b_low is not None and b_high is not None:
        corners = (a_low * b_low, a_low * b_high, a_high * b_low, a_high * b_high)
        return min(corners), max(corners)
    if a_low is not None and a_low >= 0:
        return _times_nonnegative(a_low, a_high, b)
    if b_low is not None and b_low >= 0:
        return _times_nonnegative(b_low, b_high, a)
    if a_high is not None and a_high <= 0:
        low, high = _times_nonnegative(-a_high, None if a_low is None else -a_low, b)
        return None if high is None else -high, None if low is None else -low
    if b_high is not None and b_high <= 0:
        low, high = _times_nonnegative(-b_high, None if b_low is None else -b_low, a)
        return None if high is None else -high, None if low is None else -low
    return None, None


def _times_nonnegative(low: int, high: int | None, other: Interval) -> Interval:
    """`[low, high] * other` with `low >= 0`."""
    first, last = other
    least = greatest = None
    if first is not None:
        least = first * low if first >= 0 else None if high is None else first * high
    if last is not None:
        greatest = last * low if last <= 0 else None if high is None else last * high
    return least, greatest


def _quotient(a: Interval, b: Interval) -> Interval:
    """`a // b`; bounded only if all divisors have one sign."""
    low, high = b
    if low is not None and low >= 0:
        return _quotient_positive(a, max(low, 1), high)
    if high is not None and high <= 0:
        first, last = a
        negated = (None if last is None else -last, None if first is None else -first)
        return _quotient_positive(negated, max(-high, 1), None if low is None else -low)
    return None, None


def _quotient_positive(a: Interval, low: int, high: int | None) -> Interval:
    """`a // d` for `1 <= low <= d <= high`: monotone in the dividend, towards 0 (or -1) in the divisor."""
    first, last = a
    least = greatest = None
    if high is not None and high < low:
        return None, None
    if first is not None:
        least = first // low if first < 0 else 0 if high is None else first // high
    if last is not None:
        greatest = last // low if last >= 0 else -1 if high is None else last // high
    return least, greatest


def _remainder(a: Interval, b: Interval) -> Interval:
    low, high = b
    if b == (0, 0):
        return None, None
    if low is not None and low >= 0:
        limit = None if high is None else high - 1
        if a[0] is not None and a[0] >= 0 and a[1] is not None:
            # The remainder of a non-negative number is no greater than the number.
            limit = a[1] if limit is None else min(limit, a[1])
        return 0, limit
    if high is not None and high <= 0:
        return None if low is None else low + 1, 0
    return widest((0, None if high is None else high - 1), (None if low is None else low + 1, 0))


def _extremum(x: Min | Max, parts: list[Interval]) -> Interval:
    """Bounds of a minimum or maximum.

    A minimum is at least the least lower bound and at most every upper bound; a maximum is the reverse.
    """
    lows = [low for low, _ in parts if low is not None]
    highs = [high for _, high in parts if high is not None]
    if isinstance(x, Min):
        return min(lows) if len(lows) == len(parts) else None, min(highs, default=None)
    return max(lows, default=None), max(highs) if len(highs) == len(parts) else None
