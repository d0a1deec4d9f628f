"""Pooling windows along one dimension: where they start, what they cover, and which of them cover a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, Term, add, cdiv, floordiv, maximum, minimum, mod, mul


class Windows(Protocol):
    """The windows along one dimension of ``size`` elements, one for each of ``count`` results."""

    @property
    def size(self) -> Size:
        """Elements of the dimension."""

    @property
    def extent(self) -> Size:
        """Places in a window, those outside the dimension included."""

    @property
    def cover(self) -> int:
        """How many windows may cover one element, at most."""

    def position(self, window: Size, step: Size) -> Size:
        """The element at place ``step`` of a window."""

    def inside(self, window: Size, step: Size) -> list[Expr]:
        """What has to hold for that element to exist and to belong to the window; empty when it always does."""

    def first(self, window: Size) -> Size:
        """The first element of a window."""

    def covering(self, element: Size, number: Size) -> Size:
        """The ``number``-th window that may cover an element."""

    def covers(self, element: Size, number: Size) -> list[Expr]:
        """What has to hold for that window to exist and to cover the element; empty when it always does."""


def at_least(a: Size, b: Size) -> Expr:
    """Whether ``a >= b``."""
    return build.op("ge", build.index(a), build.index(b))


def below(a: Size, b: Size) -> Expr:
    """Whether ``a < b``."""
    return build.op("lt", build.index(a), build.index(b))


@dataclass(frozen=True, slots=True)
class Strided:
    """Windows of ``kernel`` places, ``dilation`` apart, that start ``stride`` apart from ``-padding``."""

    size: Size
    count: Size
    kernel: int
    stride: int
    padding: int
    dilation: int = 1

    @property
    def extent(self) -> Size:
        """Places in a window."""
        return self.kernel

    @property
    def span(self) -> int:
        """Elements from the first place of a window to its last."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def cover(self) -> int:
        """Windows that overlap at one element."""
        return -(-self.span // self.stride)

    def start(self, window: Size) -> Size:
        """Where a window starts: below zero in the padding."""
        return add(mul(window, self.stride), -self.padding)

    def overhang(self) -> Size:
        """How far the last window reaches beyond the last element: not positive when every window ends inside."""
        return add(self.start(add(self.count, -1)), self.span, mul(self.size, -1))

    def position(self, window: Size, step: Size) -> Size:
        return add(self.start(window), mul(step, self.dilation))

    def inside(self, window: Size, step: Size) -> list[Expr]:
        element, overhang = self.position(window, step), self.overhang()
        conditions = [at_least(element, 0)] if self.padding else []
        if isinstance(overhang, Term) or overhang > 0:
            conditions.append(below(element, self.size))
        return conditions

    def first(self, window: Size) -> Size:
        start = self.start(window)
        return maximum(start, mod(start, self.dilation)) if self.padding else start

    def covering(self, element: Size, number: Size) -> Size:
        return add(floordiv(add(element, self.padding), self.stride), mul(number, -1))

    def covers(self, element: Size, number: Size) -> list[Expr]:
        window = self.covering(element, number)
        last = floordiv(add(self.size, self.padding, -1), self.stride)
        conditions = [at_least(window, 0)] if self.cover > 1 else []
        surplus = add(last, mul(self.count, -1))
        if isinstance(surplus, Term) or surplus >= 0:
            conditions.append(below(window, self.count))
        if self.cover * self.stride != self.span:
            offset = add(mod(add(element, self.padding), self.stride), mul(number, self.stride))
            conditions.append(below(offset, self.span))
        return conditions


@dataclass(frozen=True, slots=True)
class Adaptive:
    """``count`` windows that share ``size`` elements out: the first of window ``o`` is ``o*size//count``, and it ends
    before ``ceil((o + 1)*size/count)``.

    Where sizes are not known, ``count`` has to divide ``size`` (see :attr:`known`).
    """

    size: Size
    count: Size

    @property
    def even(self) -> bool:
        """True when all windows are equally long and none overlap."""
        return mod(self.size, self.count) == 0

    @property
    def known(self) -> bool:
        """True when :attr:`extent` and :attr:`cover` can be told."""
        return self.even or (isinstance(self.size, int) and isinstance(self.count, int))

    @property
    def extent(self) -> Size:
        """The length of the longest window."""
        if self.even or isinstance(self.size, Term) or isinstance(self.count, Term):
            return floordiv(self.size, self.count)
        return max(_length(o, self.size, self.count) for o in range(self.count))

    @property
    def cover(self) -> int:
        """Windows that overlap at one element."""
        if self.even or isinstance(self.size, Term) or isinstance(self.count, Term):
            return 1
        return max(_length(p, self.count, self.size) for p in range(self.size))

    def length(self, window: Size) -> Size:
        """How many elements a window holds."""
        return add(_end(window, self.size, self.count), mul(self.first(window), -1))

    def position(self, window: Size, step: Size) -> Size:
        return add(self.first(window), step)

    def inside(self, window: Size, step: Size) -> list[Expr]:
        return [] if self.even else [below(step, self.length(window))]

    def first(self, window: Size) -> Size:
        return floordiv(mul(window, self.size), self.count)

    def covering(self, element: Size, number: Size) -> Size:
        return add(floordiv(mul(element, self.count), self.size), number)

    def covers(self, element: Size, number: Size) -> list[Expr]:
        return (
            [] if self.even else [below(self.covering(element, number), _end(element, self.count, self.size))]
        )


def _end(part: Size, whole: Size, parts: Size) -> Size:
    return cdiv(mul(add(part, 1), whole), parts)


def _length(part: int, whole: int, parts: int) -> int:
    return -(-(part + 1) * whole // parts) - part * whole // parts


def count_of(window: Size, w: Windows, padded: bool) -> Size:
    """How many elements of its dimension a window holds; ``padded``: those of the padding too."""
    if isinstance(w, Adaptive):
        return w.length(window)
    assert isinstance(w, Strided)
    overhang = w.overhang()
    room = w.padding if padded else 0
    if isinstance(overhang, int) and overhang <= room and (padded or not w.padding):
        return w.kernel
    start = w.start(window)
    end = minimum(add(start, w.kernel), add(w.size, w.padding if padded else 0))
    return add(end, mul(start if padded else maximum(start, 0), -1))


def positions(windows: Sequence[Windows], outer: Sequence[Size], steps: Sequence[Size]) -> list[Size]:
    """The element at ``steps`` of the windows ``outer``, along each dimension."""
    return [w.position(o, r) for w, o, r in zip(windows, outer, steps, strict=True)]


def all_inside(windows: Sequence[Windows], outer: Sequence[Size], steps: Sequence[Size]) -> Expr:
    """Whether that element exists in every dimension."""
    return build.logical_and(
        *(c for w, o, r in zip(windows, outer, steps, strict=True) for c in w.inside(o, r))
    )


def coverings(windows: Sequence[Windows], place: Sequence[Size], numbers: Sequence[Size]) -> list[Size]:
    """The window of those numbers that may cover ``place``, along each dimension."""
    return [w.covering(p, n) for w, p, n in zip(windows, place, numbers, strict=True)]


def all_cover(windows: Sequence[Windows], place: Sequence[Size], numbers: Sequence[Size]) -> Expr:
    """Whether that window exists and covers ``place`` in every dimension."""
    return build.logical_and(
        *(c for w, p, n in zip(windows, place, numbers, strict=True) for c in w.covers(p, n))
    )
