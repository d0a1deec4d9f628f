"""Bounds of how much an index grows from lane to lane, where that is not the same for all lanes."""

from __future__ import annotations

from collections.abc import Callable

from litz_ir.symbols import Max, Min, Mod, Size, Sum

StrideOf = Callable[[Size], Size | None]
"""Growth of a term from lane to lane; ``None`` when it is not uniform."""

Steps = tuple[int | None, int | None]
"""The least and the largest growth from one lane to the next; ``None`` where it is unknown."""

_UNKNOWN: Steps = (None, None)


def lane_steps(x: Size, stride_of: StrideOf) -> Steps:
    """Return bounds of the growth of a term from one lane to the next.

    Where the growth is at most 1 and the last lane is as far from the first as there are steps between them, every
    step is 1: the lanes are contiguous. Indices that are reflected, clamped or wrapped are so but for a few registers;
    a quotient's never are, so that its bounds are not asked for.
    """
    stride = stride_of(x)
    if stride is not None:
        return (stride, stride) if isinstance(stride, int) else _UNKNOWN
    match x:
        case Sum():
            low: int | None = 0
            high: int | None = 0
            for term, factor in x.terms:
                ends = _scaled(lane_steps(term, stride_of), factor)
                low, high = _added(low, ends[0]), _added(high, ends[1])
            return low, high
        case Min() | Max():
            # A step from one argument to another is between the steps of both.
            parts = [lane_steps(each, stride_of) for each in x.args]
            lows, highs = [low for low, _ in parts], [high for _, high in parts]
            return (
                None if None in lows else min(each for each in lows if each is not None),
                None if None in highs else max(each for each in highs if each is not None),
            )
        case Mod():
            # One wrap subtracts a divisor from a step up, and adds one to a step down.
            low, high = lane_steps(x.dividend, stride_of)
            if low is not None and low >= 0:
                return None, high
            return (low, None) if high is not None and high <= 0 else _UNKNOWN
    return _UNKNOWN


def _scaled(steps: Steps, factor: int) -> Steps:
    low, high = (None if each is None else each * factor for each in steps)
    return (low, high) if factor >= 0 else (high, low)


def _added(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
