"""Positions of slices and selected elements, where the sign of a symbolic index may be known only at run time."""

from __future__ import annotations

from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, add, bounds, maximum, minimum, mul
from litz_lowering.contexts.context import LoweringContext

_TO_THE_END = 2**62


def slice_start(ctx: LoweringContext, start: Size | None, size: Size) -> Size:
    """First element of a slice: at least 0, and at most ``size`` where the slice has elements."""
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
    """Number of elements of a slice as a body for the host; ``start`` comes from :func:`slice_start`."""
    is_open = end is None or (isinstance(end, int) and end >= _TO_THE_END)
    everything = build.index(size)
    stop = everything if is_open or end is None else build.op("minimum", _clamped(end, size), everything)
    span = build.op("sub", stop, build.index(add(start, mul(step, -1), 1)))
    return build.op("maximum", build.op("floor_div", span, build.index(step)), build.index(0))


def element(ctx: LoweringContext, index: Size, size: Size, dim: int) -> Size:
    """Position of a selected element. Negative indices count from the end; those out of range raise at run time."""
    if isinstance(index, int):
        least = bounds(size, ctx.builder.symbols.ranges()).low
        if isinstance(least, int) and -least <= index < least:
            return add(index, size) if index < 0 else index
        needed = -index if index < 0 else index + 1
        large_enough = build.op("ge", build.index(size), build.index(needed))
        ctx.check(large_enough, _outside(dim), error="IndexError")
        return maximum(add(index, size), 0) if index < 0 else minimum(index, maximum(add(size, -1), 0))
    known = bounds(index, ctx.builder.symbols.ranges())
    if isinstance(known.low, int) and known.low >= 0:
        position = index
    else:
        position = ctx.host_integer(_wrapped(index, size), "place", low=0)
    inside = build.logical_and(
        build.op("ge", build.index(position), build.index(0)),
        build.op("lt", build.index(position), build.index(size)),
    )
    ctx.check(inside, _outside(dim), error="IndexError")
    return position


def _outside(dim: int) -> str:
    """Message of an error about a selected element."""
    return f"select(): index out of range at dimension {dim}"


def _wrapped(index: Size, size: Size) -> Expr:
    """Index with negative ones counted from the end."""
    position = build.index(index)
    from_the_end = build.op("add", position, build.index(size))
    return build.where(build.op("lt", position, build.index(0)), from_the_end, position)


def _clamped(index: Size, size: Size) -> Expr:
    """Index with negative ones counted from the end and clamped to the start."""
    return build.op("maximum", _wrapped(index, size), build.index(0))
