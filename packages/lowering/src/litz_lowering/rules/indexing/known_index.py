"""Index tensors whose values are known at compile time, as index terms.

Resampling gathers by a function of the position alone, computed in floats: an ``arange``, scaled and rounded.
Evaluated at compile time it is a staircase ``(a*i + b)//c``, which loops read without an index tensor and which
can be inverted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from litz_ir.interp import run_graph
from litz_ir.loops import LoopGraph, Operation, Pointwise, Ref, View
from litz_ir.scalar import Expr, Scalar, build, walk
from litz_ir.symbols import Size, SymbolTable, Term, add, cdiv, floordiv, maximum, minimum, mul, product
from litz_lowering.contexts.context import GraphBuilder, Tensor

_MAX_ELEMENTS = 1 << 14
"""Most elements of an index that is computed while lowering; a longer one is read from memory."""

_MAX_OPERATIONS = 64
"""Most operations that are interpreted to compute an index while lowering."""

_MAX_PERIOD = 128
"""Largest divisor of a staircase that is tried."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stair:
    """The non-decreasing function ``min(max((slope*i + offset)//divisor, low), high)`` of ``i`` in ``[0,
    count)``.

    ``low`` and ``high`` are None where they do not clip.
    """

    count: int
    slope: int
    offset: int
    divisor: int
    low: int | None = None
    high: int | None = None

    def term(self, i: Size) -> Size:
        """Term of the value at ``i``."""
        step = floordiv(add(mul(i, self.slope), self.offset), self.divisor)
        if self.low is not None:
            step = maximum(step, self.low)
        return step if self.high is None else minimum(step, self.high)

    def values(self) -> Integers:
        """Values at every ``i``."""
        step = (self.slope * np.arange(self.count, dtype=np.int64) + self.offset) // self.divisor
        return np.clip(step, self.low, self.high) if self.low is not None or self.high is not None else step

    def inverse(self, size: int) -> Inverse | None:
        """Preimages of each ``v`` in ``[0, size)``; None for a slope of zero."""
        if self.slope <= 0:
            return None
        values = self.values()
        distance = np.arange(self.count) - self._first(values)
        lead = max(-int(distance.min()), 0)
        extent = int(distance.max()) + lead + 1
        reached = self._first(np.arange(size))[:, None] - lead + np.arange(extent)
        outside = (reached < 0) | (reached >= self.count)
        other = values[np.clip(reached, 0, self.count - 1)] != np.arange(size)[:, None]
        return Inverse(self, lead, extent, bool(outside.any()), bool((other & ~outside).any()))

    def first(self, value: Size) -> Size:
        """First ``i`` at which the unclipped staircase reaches ``value``."""
        return cdiv(add(mul(value, self.divisor), -self.offset), self.slope)

    def _first(self, values: Integers) -> Integers:
        return -((self.offset - values * self.divisor) // self.slope)


@dataclass(frozen=True, slots=True)
class Inverse:
    """Preimages of a value under ``stair``: some of the ``extent`` positions that :meth:`position` gives."""

    stair: Stair
    lead: int
    extent: int
    outside: bool
    """True where some positions are outside the staircase's domain."""
    other: bool
    """True where some positions map to another value."""

    def position(self, value: Size, number: Size) -> Size:
        """The ``number``-th position that may map to ``value``."""
        return add(self.stair.first(value), -self.lead, number)

    def conditions(self, value: Size, number: Size) -> list[Expr]:
        """Conditions for the position to map to ``value``; empty when it always does."""
        position = build.index(self.position(value, number))
        found: list[Expr] = []
        if self.outside:
            found.append(build.op("ge", position, build.index(0)))
            found.append(build.op("lt", position, build.index(self.stair.count)))
        if self.other:
            mapped = self.stair.term(self.position(value, number))
            found.append(build.op("eq", build.index(mapped), build.index(value)))
        return found


def stair_of(
    builder: GraphBuilder, index: Tensor, size: Size, *, wrap: bool = False
) -> tuple[Stair, int] | None:
    """Staircase in an index tensor, and the dimension along which it varies.

    ``wrap``: negative values count from the end of ``size``. None where values are unknown, outside ``[0,
    size)``, vary along several dimensions, or form no staircase.
    """
    varying = [d for d, extent in enumerate(index.shape) if extent != 1]
    if len(varying) != 1 or not isinstance(size, int) or not isinstance(index.numel, int):
        return None
    values = _values(builder, index) if 0 < index.numel <= _MAX_ELEMENTS else None
    if values is None:
        return None
    if wrap:
        values = np.where(values < 0, values + size, values)
    if values.min() < 0 or values.max() >= size:
        return None
    stair = fit(values)
    return None if stair is None else (stair, varying[0])


def fit(values: Integers) -> Stair | None:
    """Staircase with the smallest divisor that takes these values; None where there is none."""
    count = len(values)
    if count == 0 or (np.diff(values) < 0).any():
        return None
    rise = int(values[-1] - values[0])
    for divisor in range(1, min(_MAX_PERIOD, 2 * count) + 1):
        middle = (rise * divisor) // max(count - 1, 1)
        for slope in sorted({max(middle + k, 0) for k in (-1, 0, 1, 2)}):
            for clip in (False, True):
                found = _fit_offset(values, slope, divisor, clip)
                if found is not None:
                    return found
    return None


def _fit_offset(values: Integers, slope: int, divisor: int, clip: bool) -> Stair | None:
    """Staircase of a slope and divisor; with ``clip``, its ends may be clipped to the smallest and largest value."""
    low, high = int(values[0]), int(values[-1])
    at_least = values * divisor - slope * np.arange(len(values))
    at_most = at_least + divisor - 1
    if clip:
        at_least, at_most = at_least[values > low], at_most[values < high]
        if not len(at_least) or not len(at_most):
            return None
    offset = int(at_least.max())
    if offset > int(at_most.min()):
        return None
    uncut = Stair(len(values), slope, offset, divisor)
    ends = uncut.values()[[0, -1]]
    return Stair(
        len(values), slope, offset, divisor, low if ends[0] < low else None, high if ends[1] > high else None
    )


def _values(builder: GraphBuilder, index: Tensor) -> Integers | None:
    """Elements of an index tensor that depends on no input, in row-major order."""
    operations = _closure(builder, index.name)
    if operations is None:
        return None
    graph = LoopGraph("index", SymbolTable(), (), (), operations, (Ref(index.name),))
    (found,) = run_graph(graph, [])
    return np.asarray(found, np.int64).reshape(-1)


def _closure(builder: GraphBuilder, name: str) -> tuple[Operation, ...] | None:
    """Operations that a value depends on, in program order; None where they read anything but positions and
    literals."""
    found: dict[str, Operation] = {}

    def visit(wanted: str) -> bool:
        operation = builder.producer(wanted)
        if operation is None or len(found) >= _MAX_OPERATIONS or not _is_closed(operation):
            return False
        if not all(name in found or visit(name) for name in operation.reads):
            return False
        found[wanted] = operation
        return True

    return tuple(found.values()) if visit(name) else None


def _is_closed(operation: Operation) -> bool:
    """True for an operation with few elements that depends only on its loads."""
    if isinstance(operation, View):
        free = {name for term in operation.index if isinstance(term, Term) for name in term.free_symbols}
    elif isinstance(operation, Pointwise) and len(operation.results) == 1:
        free = {name for body in operation.bodies for name in body.free_symbols}
        if any(isinstance(node, Scalar) for node in walk(*operation.bodies)):
            return False
    else:
        return False
    count = product(axis.size for axis in operation.axes)
    return (
        isinstance(count, int) and count <= _MAX_ELEMENTS and free <= {axis.name for axis in operation.axes}
    )
