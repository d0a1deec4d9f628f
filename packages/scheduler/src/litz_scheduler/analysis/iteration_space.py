"""Iteration spaces of operations, and the common refinement of two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.loops import Axis, Operation, Pointwise, Reduction, Scan, Scatter
from litz_ir.symbols import Size, add, floordiv, mod, mul, symbol


@dataclass(frozen=True, slots=True)
class IterationSpace:
    """The axes of an operation without those of size 1."""

    outer: tuple[Axis, ...]
    """The axes of its results."""
    inner: tuple[Axis, ...]
    """The reduced axes, or the scanned one; empty for a pointwise operation."""


@dataclass(frozen=True, slots=True)
class CommonSpace:
    """A common refinement of two lists of axes."""

    axes: tuple[Size, ...]
    """The sizes of the refined axes."""
    first: tuple[Size, ...]
    """Each axis of the first list as a term over the refined axes."""
    second: tuple[Size, ...]
    """The same for the second list."""


def space_of(operation: Operation) -> IterationSpace:
    """Return the iteration space of a loop; raise ``TypeError`` for any other operation."""
    match operation:
        case Pointwise() | Scatter():
            return IterationSpace(_proper(operation.axes), ())
        case Reduction():
            return IterationSpace(_proper(operation.axes), _proper(operation.reduce_axes))
        case Scan():
            return IterationSpace(_proper(operation.axes), _proper((operation.scan_axis,)))
    raise TypeError(f"{type(operation).__name__} has no iteration space")


def is_sum_of_chunks(operation: Operation) -> bool:
    """Return whether an operation adds the rows of each chunk of a matrix, over axes (chunk, ..., column).

    Chunks may run in any order, and so may columns; the rows of a chunk may not.
    """
    return (
        isinstance(operation, Scatter)
        and operation.mode == "add"
        and len(operation.axes) > 2
        and operation.index == (symbol(operation.axes[0].name), symbol(operation.axes[-1].name))
    )


def _proper(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(axis for axis in axes if axis.size != 1)


def collapsed_axes(axes: Sequence[Axis]) -> dict[str, Size]:
    """Return the axes of size 1, each mapped to its only point, 0."""
    return {axis.name: 0 for axis in axes if axis.size == 1}


def divided(index: Size, axes: Sequence[Axis]) -> dict[str, Size]:
    """Return each axis as a term of the row-major ``index`` of their points."""
    terms: dict[str, Size] = {}
    for axis in reversed(axes[1:]):
        terms[axis.name], index = mod(index, axis.size), floordiv(index, axis.size)
    return terms | {axes[0].name: index}


def refine(first: Sequence[Size], second: Sequence[Size], prefix: str) -> CommonSpace | None:
    """Return the common refinement of two lists of sizes with the same row-major numbering of points.

    The refined axes are ``prefix0``, ``prefix1``, …; each given axis becomes a mixed-radix term over them. ``(128,
    512)`` and ``(2, 64, 512)`` refine to ``(2, 64, 512)``. ``None`` where there is no such refinement.
    """
    sizes: list[Size] = []
    owners: tuple[list[int], list[int]] = ([], [])
    stacks = (list(first), list(second))
    remaining: list[Size] = [1, 1]
    while True:
        for k in (0, 1):
            while remaining[k] == 1 and stacks[k]:
                remaining[k] = stacks[k].pop()
        a, b = remaining
        if a == 1 and b == 1:
            break
        size = _common(a, b)
        if size is None:
            return None
        sizes.append(size)
        for k in (0, 1):
            owners[k].append(len(stacks[k]))
            remaining[k] = 1 if remaining[k] == size else remaining[k] // size
    sizes.reverse()
    names = [symbol(f"{prefix}{number}") for number in range(len(sizes))]
    for sources in owners:
        sources.reverse()
    return CommonSpace(
        tuple(sizes),
        _mixed_radix(len(first), owners[0], sizes, names),
        _mixed_radix(len(second), owners[1], sizes, names),
    )


def _common(a: Size, b: Size) -> Size | None:
    """Return the size of the innermost refined axis: the smaller of two sizes if it divides the larger."""
    if a == b:
        return a
    if not isinstance(a, int) or not isinstance(b, int) or 1 in (a, b) or 0 in (a, b):
        return None
    low, high = min(a, b), max(a, b)
    return low if high % low == 0 else None


def _mixed_radix(
    count: int, sources: Sequence[int], sizes: Sequence[Size], names: Sequence[Size]
) -> tuple[Size, ...]:
    terms: list[Size] = [0] * count
    strides: list[Size] = [1] * count
    for k in range(len(sizes) - 1, -1, -1):
        axis = sources[k]
        terms[axis] = add(terms[axis], mul(names[k], strides[axis]))
        strides[axis] = mul(strides[axis], sizes[k])
    return tuple(terms)
