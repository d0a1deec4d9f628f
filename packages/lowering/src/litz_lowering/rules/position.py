"""Where slices start and selected elements are, when the sign of a symbolic index may be only known when it runs."""

from __future__ import annotations

from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, add, bounds, maximum, mul
from litz_lowering.context import LoweringContext

_TO_THE_END = 2**62


def slice_start(ctx: LoweringContext, start: Size | None, size: Size) -> Size:
    """The first element of a slice: at least 0, and at most ``size`` where the slice has elements."""
    if start is None:
        return 0
    if isinstance(start, int) and isinstance(size, int):
        return min(max(start + size, 0) if start < 0 else start, size)
    known = bounds(start, ctx.builder.symbols.ranges())
    if isinstance(known.low, int) and known.low >= 0:
        return start
    if isinstance(known.high, int) and known.high < 0:
        first = add(start, size)
        lowest = bounds(first, ctx.builder.symbols.ranges()).low
        return first if isinstance(lowest, int) and lowest >= 0 else maximum(first, 0)
    return ctx.host_integer(_clamped(start, size), "start", low=0)


def slice_length(start: Size, end: Size | None, step: Size, size: Size) -> Expr:
    """How many elements a slice has, as a body of the host; ``start`` is what :func:`slice_start` gave."""
    whole = end is None or (isinstance(end, int) and end >= _TO_THE_END)
    everything = build.index(size)
    stop = everything if whole or end is None else build.op("minimum", _clamped(end, size), everything)
    span = build.op("sub", stop, build.index(add(start, mul(step, -1), 1)))
    return build.op("maximum", build.op("floor_div", span, build.index(step)), build.index(0))


def element(ctx: LoweringContext, index: Size, size: Size, dim: int) -> Size:
    """The place of a selected element; negative indices count from the end, and what is outside raises when it runs."""
    if isinstance(index, int):
        return add(index, size) if index < 0 else index
    known = bounds(index, ctx.builder.symbols.ranges())
    if isinstance(known.low, int) and known.low >= 0:
        place = index
    else:
        place = ctx.host_integer(_wrapped(index, size), "place", low=0)
    inside = build.logical_and(
        build.op("ge", build.index(place), build.index(0)),
        build.op("lt", build.index(place), build.index(size)),
    )
    ctx.check(inside, f"select(): index out of range at dimension {dim}", error="IndexError")
    return place


def _wrapped(index: Size, size: Size) -> Expr:
    """Negative indices count from the end."""
    place = build.index(index)
    from_the_end = build.op("add", place, build.index(size))
    return build.where(build.op("lt", place, build.index(0)), from_the_end, place)


def _clamped(index: Size, size: Size) -> Expr:
    """The same, and what lies before the start is the start."""
    return build.op("maximum", _wrapped(index, size), build.index(0))
