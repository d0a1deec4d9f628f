"""Pooling windows along one dimension: their starts, their elements, and the windows that cover an element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, Term, add, cdiv, floordiv, maximum, minimum, mod, mul


class Windows(Protocol):
    """Windows along one dimension of ``size`` elements, one for each of ``count`` results."""

    @property
    def size(self) -> Size:
        """Number of elements of the dimension."""

    @property
    def extent(self) -> Size:
        """Number of positions in a window, including those outside the dimension."""

    @property
    def cover(self) -> int:
        """Largest number of windows that cover one element."""

    def position(self, window: Size, step: Size) -> Size:
        """Element at position ``step`` of a window."""

    def inside(self, window: Size, step: Size) -> list[Expr]:
        """Conditions for that element to exist and to belong to the window; empty when it always does."""

    def first(self, window: Size) -> Size:
        """First element of a window."""

    def covering(self, element: Size, number: Size) -> Size:
        """The ``number``-th window that may cover an element."""

    def covers(self, element: Size, number: Size) -> list[Expr]:
        """Conditions for that window to exist and to cover the element; empty when it always does."""


def at_least(a: Size, b: Size) -> Expr:
    """Condition ``a >= b``."""
    return build.op("ge", build.index(a), build.index(b))


def below(a: Size, b: Size) -> Expr:
    """Condition ``a < b``."""
    return build.op("lt", build.index(a), build.index(b))


@dataclass(frozen=True, slots=True)
class Strided:
    """Windows of ``kernel`` positions, ``dilation`` apart, that start every ``stride`` elements from ``-padding``."""

    size: Size
    count: Size
    kernel: int
    stride: int
    padding: int
    dilation: int = 1

    @property
    def extent(self) -> Size:
        """Number of positions in a window."""
        return self.kernel

    @property
    def span(self) -> int:
        """Distance from the first to the last position of a window, plus one."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def cover(self) -> int:
        """Number of windows that overlap at one element."""
        return -(-self.span // self.stride)

    def start(self, window: Size) -> Size:
        """Start of a window; negative in the padding."""
        return add(mul(window, self.stride), -self.padding)

    def overhang(self) -> Size:
        """Elements by which the last window exceeds the dimension; not positive when every window ends inside."""
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
    """Windows that divide ``size`` elements into ``count`` parts, as in adaptive pooling.

    Window ``o`` starts at ``o*size//count`` and ends before ``ceil((o + 1)*size/count)``. With symbolic sizes,
    ``count`` has to divide ``size`` (see :attr:`known`).
    """

    size: Size
    count: Size

    @property
    def even(self) -> bool:
        """True when all windows have equal length without overlap."""
        return mod(self.size, self.count) == 0

    @property
    def known(self) -> bool:
        """True when :attr:`extent` and :attr:`cover` are static."""
        return self.even or (isinstance(self.size, int) and isinstance(self.count, int))

    @property
    def extent(self) -> Size:
        """Length of the longest window."""
        if self.even or isinstance(self.size, Term) or isinstance(self.count, Term):
            return floordiv(self.size, self.count)
        return max(_length(o, self.size, self.count) for o in range(self.count))

    @property
    def cover(self) -> int:
        """Number of windows that overlap at one element."""
        if self.even or isinstance(self.size, Term) or isinstance(self.count, Term):
            return 1
        return max(_length(p, self.count, self.size) for p in range(self.size))

    def length(self, window: Size) -> Size:
        """Number of elements of a window."""
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


def _end(window: Size, size: Size, count: Size) -> Size:
    return cdiv(mul(add(window, 1), size), count)


def _length(window: int, size: int, count: int) -> int:
    return -(-(window + 1) * size // count) - window * size // count


def count_of(window: Size, w: Windows, padded: bool) -> Size:
    """Number of elements of a window; with ``padded``, including padding."""
    if isinstance(w, Adaptive):
        return w.length(window)
    assert isinstance(w, Strided)
    overhang = w.overhang()
    padding_after = w.padding if padded else 0
    if isinstance(overhang, int) and overhang <= padding_after and (padded or not w.padding):
        return w.kernel
    start = w.start(window)
    end = minimum(add(start, w.kernel), add(w.size, padding_after))
    return add(end, mul(start if padded else maximum(start, 0), -1))


def positions(windows: Sequence[Windows], outer: Sequence[Size], steps: Sequence[Size]) -> list[Size]:
    """Element at ``steps`` of the windows ``outer``, along each dimension."""
    return [w.position(o, r) for w, o, r in zip(windows, outer, steps, strict=True)]


def all_inside(windows: Sequence[Windows], outer: Sequence[Size], steps: Sequence[Size]) -> Expr:
    """Condition that this element exists in every dimension."""
    return build.logical_and(
        *(c for w, o, r in zip(windows, outer, steps, strict=True) for c in w.inside(o, r))
    )


def coverings(windows: Sequence[Windows], element: Sequence[Size], numbers: Sequence[Size]) -> list[Size]:
    """Window of those numbers that may cover ``element``, along each dimension."""
    return [w.covering(e, n) for w, e, n in zip(windows, element, numbers, strict=True)]


def all_cover(windows: Sequence[Windows], element: Sequence[Size], numbers: Sequence[Size]) -> Expr:
    """Condition that this window exists and covers ``element`` in every dimension."""
    return build.logical_and(
        *(c for w, e, n in zip(windows, element, numbers, strict=True) for c in w.covers(e, n))
    )
