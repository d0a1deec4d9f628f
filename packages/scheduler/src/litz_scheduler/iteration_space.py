"""Iteration spaces: what an operation runs over, and how two of them can be made one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.loops import Axis, Operation, Pointwise, Reduction
from litz_ir.symbols import Size, add, mul, symbol


@dataclass(frozen=True, slots=True)
class IterationSpace:
    """An operation's axes without those of size one. ``names`` pairs each kept axis with its name in the bodies."""

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class CommonSpace:
    """Two spaces over one list of ``axes``: the terms that stand for each axis of the first and of the second."""

    axes: tuple[Size, ...]
    first: tuple[Size, ...]
    second: tuple[Size, ...]


def space_of(operation: Operation) -> IterationSpace:
    """The space of a pointwise operation or a reduction."""
    match operation:
        case Pointwise():
            return IterationSpace(_proper(operation.axes), ())
        case Reduction():
            return IterationSpace(_proper(operation.axes), _proper(operation.reduce_axes))
    raise TypeError(f"{type(operation).__name__} has no iteration space")


def _proper(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(axis for axis in axes if axis.size != 1)


def collapsed_axes(axes: Sequence[Axis]) -> dict[str, Size]:
    """Axes of size one, each at its only point."""
    return {axis.name: 0 for axis in axes if axis.size == 1}


def refine(first: Sequence[Size], second: Sequence[Size], prefix: str) -> CommonSpace | None:
    """A common refinement of two lists of sizes whose points are numbered alike (row-major), or ``None``.

    The refined axes are called ``prefix0``, ``prefix1``, …; each given axis becomes a mixed-radix term over them.
    ``(128, 512)`` and ``(2, 64, 512)`` refine to ``(2, 64, 512)``.
    """
    sizes: list[Size] = []
    owners: tuple[list[int], list[int]] = ([], [])
    stacks = (list(first), list(second))
    left: list[Size] = [1, 1]
    while True:
        for side in (0, 1):
            while left[side] == 1 and stacks[side]:
                left[side] = stacks[side].pop()
        a, b = left
        if a == 1 and b == 1:
            break
        step = _common(a, b)
        if step is None:
            return None
        sizes.append(step)
        for side in (0, 1):
            owners[side].append(len(stacks[side]))
            left[side] = 1 if left[side] == step else left[side] // step
    sizes.reverse()
    names = [symbol(f"{prefix}{k}") for k in range(len(sizes))]
    for owner in owners:
        owner.reverse()
    return CommonSpace(
        tuple(sizes),
        _mixed_radix(len(first), owners[0], sizes, names),
        _mixed_radix(len(second), owners[1], sizes, names),
    )


def _common(a: Size, b: Size) -> Size | None:
    """The innermost factor that both sizes can be split by."""
    if a == b:
        return a
    if not isinstance(a, int) or not isinstance(b, int) or 1 in (a, b) or 0 in (a, b):
        return None
    low, high = min(a, b), max(a, b)
    return low if high % low == 0 else None


def _mixed_radix(
    count: int, owner: Sequence[int], sizes: Sequence[Size], names: Sequence[Size]
) -> tuple[Size, ...]:
    terms: list[Size] = [0] * count
    steps: list[Size] = [1] * count
    for k in range(len(sizes) - 1, -1, -1):
        axis = owner[k]
        terms[axis] = add(terms[axis], mul(names[k], steps[axis]))
        steps[axis] = mul(steps[axis], sizes[k])
    return tuple(terms)
