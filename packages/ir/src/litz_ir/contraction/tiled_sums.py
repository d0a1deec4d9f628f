"""Convolutions among the loop nests of kernels: sums over filter points and channels that a CPU computes in tiles.

The right operand is prepacked: for a convolution of whole channels in panels of so many output channels, each with all
summed elements one after another; for one with a filter for each channel with its channels adjacent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from litz_ir.contraction.nest import SUM
from litz_ir.dtypes import f32
from litz_ir.loops.nodes import Axis, Combiner
from litz_ir.scalar.expr import Const, Index, Load, Masked, Op
from litz_ir.scalar.node import Expr
from litz_ir.symbols.nodes import FloorDiv, Mod
from litz_ir.symbols.polynomials import add, coefficient, mul
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.ranges import extent
from litz_ir.symbols.simplification import simplify
from litz_ir.symbols.substitution import substitute
from litz_ir.symbols.term import Size, free_symbols, symbol

MOST_FILTER_POINTS = 64
"""Most filter points along a dimension of a convolution in panels: a bit for each tells whether it is inside."""
MOST_COPIED_DEPTH = 8192
"""Most summed elements of a pixel that are copied: as many as the space for copies surely holds."""
Tiles = Literal["channels", "panels", "copies"]
"""The kind of the tiles: with a filter for each channel, of all summed elements, or of all of them as copies, since the
last summed axis is not contiguous."""
_NO_LIMIT = 1 << 62
"""The limit of a position that is known to be below its dimension's size."""


@dataclass(frozen=True, slots=True)
class Window:
    """The position of a filter point along one dimension of the input, which counts as zero outside of it.

    It is ``pixel * stride + inner * dilation - padding``; it is inside where ``0 <= position < limit``.
    """

    pixel: int
    """The slot of the axis of output points."""
    inner: int
    """The slot of the summed axis."""
    stride: int
    """Input points from one output point to the next."""
    dilation: int
    """Input points from one filter point to the next."""
    padding: int
    """Points of padding before the first input point."""
    limit: int
    """Points of the input."""


@dataclass(frozen=True, slots=True)
class TiledSum:
    """The sum over up to three axes at every point of up to three axes of pixels and one of channels."""

    source: Load
    """The element of the left operand."""
    weight: Load
    """The element of the prepacked right operand."""
    channel: Axis
    """The axis of output channels, the last outer one."""
    pixels: tuple[Axis | None, ...]
    """Three slots for the axes of pixels, slowest first, the last ones filled."""
    inner: tuple[Axis | None, ...]
    """Three slots for the summed axes, slowest first, the last ones filled."""
    windows: tuple[Window, ...]
    """Positions that decide which elements of the left operand are inside of it; none if all are."""
    depthwise: bool
    """True for a filter for each channel."""

    def stride(self, axis: Axis | None) -> int:
        """Return the elements from one point of an axis to the next in the left operand."""
        step = 0 if axis is None else coefficient(self.source.index[0], axis.name)
        assert isinstance(step, int)
        return step

    @property
    def start(self) -> int:
        """Element of the left operand at the first point of all axes."""
        axes = (*self.pixels, *self.inner, self.channel)
        first = substitute(self.source.index[0], {axis.name: 0 for axis in axes if axis is not None})
        assert isinstance(first, int)
        return first

    @property
    def tiles(self) -> Tiles:
        """Return the kind of the tiles."""
        if self.depthwise:
            return "channels"
        windowed = any(window.inner == 2 for window in self.windows)
        return "copies" if windowed or self.stride(self.inner[-1]) != 1 else "panels"

    @property
    def depth(self) -> int:
        """Number of summed elements."""
        count = 1
        for axis in self.inner:
            count *= 1 if axis is None else _size(axis)
        return count


def is_tiled_sum(combiner: Combiner, values: Sequence[Expr], columns: int) -> bool:
    """Return whether a reduction in a graph has the form that :func:`tiled_sum` finds in a kernel.

    ``columns`` is the number of a panel's.
    """
    found = _operands(combiner, values)
    if found is None or not found[1].index:
        return False
    source, weight, _ = found
    last = weight.index[-1]
    if isinstance(last, Mod):
        return last.divisor == columns and isinstance(weight.index[0], FloorDiv)
    windowed = any(len(free_symbols(term)) > 1 for term in source.index)
    return windowed and last in source.index and len(weight.index) == 3


def tiled_sum(
    combiner: Combiner, values: Sequence[Expr], outer: Sequence[Axis], inner: Sequence[Axis], columns: int
) -> TiledSum | None:
    """Return the sum that a reduction in a kernel computes at every point of ``outer``; ``None`` for others.

    ``columns`` is the number of a panel's.
    """
    found = _operands(combiner, values)
    if found is None or not 1 <= len(outer) <= 4 or not 1 <= len(inner) <= 3:
        return None
    source, weight, tests = found
    if not all(isinstance(axis.size, int) for axis in (*outer, *inner)):
        return None
    *pixels, channel = outer
    axes = (*outer, *inner)
    if not _is_linear(source.index[0], axes):
        return None
    step = coefficient(source.index[0], channel.name)
    depthwise = step == 1
    if step not in (0, 1) or weight.index[0] != _weight_offset(channel, inner, 0 if depthwise else columns):
        return None
    windows = _windows(tests, pixels, inner)
    if windows is None:
        return None
    pixel_slots, inner_slots = (*_padding(pixels), *pixels), (*_padding(inner), *inner)
    made = TiledSum(source, weight, channel, pixel_slots, inner_slots, windows, depthwise)
    return made if _fits(made) else None


def _fits(tiled: TiledSum) -> bool:
    """Return whether copies and masks of filter points are within the capacity that kernels have for them."""
    if tiled.tiles == "copies":
        return tiled.depth <= MOST_COPIED_DEPTH
    return (
        tiled.depthwise
        or max(1 if axis is None else _size(axis) for axis in tiled.inner[:2]) <= MOST_FILTER_POINTS
    )


def _padding(axes: Sequence[Axis]) -> tuple[None, ...]:
    return (None,) * (3 - len(axes))


def _operands(combiner: Combiner, values: Sequence[Expr]) -> tuple[Load, Load, tuple[Expr, ...]] | None:
    """Return the loads that are multiplied, and the tests of the first one."""
    if combiner != SUM or len(values) != 1:
        return None
    (value,) = values
    if not isinstance(value, Op) or value.name != "mul" or value.dtype != f32:
        return None
    source, weight = value.args
    tests: tuple[Expr, ...] = ()
    if isinstance(source, Masked):
        if not isinstance(source.other, Const) or source.other.value != 0:
            return None
        tests, source = _conjunction(source.cond), source.body
    if not isinstance(source, Load) or not isinstance(weight, Load):
        return None
    return source, weight, tests


def _conjunction(condition: Expr) -> tuple[Expr, ...]:
    if isinstance(condition, Op) and condition.name == "bit_and":
        return tuple(test for each in condition.args for test in _conjunction(each))
    return (condition,)


def _is_linear(offset: Size, axes: Sequence[Axis]) -> bool:
    """Return True for an offset that is known but for the axes: not one with an index that is read from memory."""
    known = isinstance(substitute(offset, {axis.name: 0 for axis in axes}), int)
    return known and all(isinstance(coefficient(offset, axis.name), int) for axis in axes)


def _weight_offset(channel: Axis, inner: Sequence[Axis], columns: int) -> Size:
    """Return the offset in a weight of panels; with ``columns`` of 0, in one of adjacent channels."""
    each = columns or _size(channel)
    offset: Size = 0
    for axis in inner:
        offset = add(mul(offset, axis.size), symbol(axis.name))
    offset = mul(offset, each)
    if not columns:
        return add(offset, symbol(channel.name))
    depth = 1
    for axis in inner:
        depth *= _size(axis)
    own = symbol(channel.name)
    if _size(channel) <= columns:
        return add(offset, own)
    panel = add(mul(floordiv(own, columns), depth * columns), offset, mod(own, columns))
    return simplify(panel, {axis.name: extent(axis.size) for axis in (channel, *inner)})


def _windows(
    tests: Sequence[Expr], pixels: Sequence[Axis], inner: Sequence[Axis]
) -> tuple[Window, ...] | None:
    """Return the windows that tests describe; ``None`` for tests of another form."""
    limits: dict[Size, int] = {}
    for test in tests:
        if not isinstance(test, Op) or test.name not in ("ge", "lt"):
            return None
        position, limit = test.args
        if not isinstance(position, Index):
            return None
        bound = limit.term if isinstance(limit, Index) else getattr(limit, "value", None)
        if not isinstance(bound, int) or (test.name == "ge" and bound != 0):
            return None
        known = limits.setdefault(position.term, _NO_LIMIT)
        limits[position.term] = known if test.name == "ge" else min(known, bound)
    windows = []
    for term, least in limits.items():
        window = _window(term, least, pixels, inner)
        if window is None:
            return None
        windows.append(window)
    return tuple(windows) if len(windows) <= 2 else None


def _window(position: Size, limit: int, pixels: Sequence[Axis], inner: Sequence[Axis]) -> Window | None:
    names = free_symbols(position)
    along = [k for k, axis in enumerate(pixels) if axis.name in names]
    summed = [k for k, axis in enumerate(inner) if axis.name in names]
    if len(along) > 1 or len(summed) > 1 or len(along) + len(summed) != len(names):
        return None
    stride = coefficient(position, pixels[along[0]].name) if along else 0
    dilation = coefficient(position, inner[summed[0]].name) if summed else 0
    first = substitute(position, dict.fromkeys(names, 0))
    if not (isinstance(stride, int) and isinstance(dilation, int) and isinstance(first, int)):
        return None
    pixel = along[0] + 3 - len(pixels) if along else 0
    tap = summed[0] + 3 - len(inner) if summed else 0
    return Window(pixel, tap, stride, dilation, -first, limit)


def _size(axis: Axis) -> int:
    assert isinstance(axis.size, int)
    return axis.size
