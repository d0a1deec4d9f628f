"""The map from a buffer's logical index to memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.symbols.extrema import maximum
from litz_ir.symbols.polynomials import add, mul
from litz_ir.symbols.term import Size


@dataclass(frozen=True, slots=True)
class Layout:
    """Strides and offset of a buffer, in elements."""

    strides: tuple[Size, ...]
    """Stride of each dimension, in elements."""
    offset: Size = 0
    """Offset of the first element from the start of memory, in elements."""
    fixed: bool = False
    """True if the layout is promised to the caller or given from outside: inputs, outputs, results of externs.

    Other layouts are those that eager would choose; the scheduler may change them.
    """

    def element(self, index: Sequence[Size]) -> Size:
        """The element offset of a logical index."""
        return add(self.offset, *(mul(i, s) for i, s in zip(index, self.strides, strict=True)))


def contiguous_strides(shape: Sequence[Size]) -> tuple[Size, ...]:
    """Row-major strides of a dense buffer; a dimension of size 0 or 1 counts as size 1, as in PyTorch."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        if not isinstance(size, int) or size > 1:
            step = mul(step, size)
    return tuple(reversed(strides))


def contiguous(shape: Sequence[Size], *, fixed: bool = False) -> Layout:
    """The row-major layout of ``shape``."""
    return Layout(contiguous_strides(shape), 0, fixed)


def stride_order(layout: Layout) -> tuple[int, ...]:
    """Dimensions from the slowest to the fastest; the given order if a stride is symbolic."""

    def weight(dim: int) -> int:
        stride = layout.strides[dim]
        return -stride if isinstance(stride, int) else 0

    if not all(isinstance(s, int) for s in layout.strides):
        return tuple(range(len(layout.strides)))
    return tuple(sorted(range(len(layout.strides)), key=weight))


def span(shape: Sequence[Size], layout: Layout) -> Size:
    """Number of elements from the start of memory to just after the last element of the layout."""
    if any(s == 0 for s in shape):
        return layout.offset
    reach = [mul(add(n, -1), s) for n, s in zip(shape, layout.strides, strict=True) if n != 1]
    return add(layout.offset, *reach, 1)


def is_dense(shape: Sequence[Size], layout: Layout) -> bool:
    """True if the strides are a permutation of row-major ones: each element of the span belongs to one index.

    A symbolic size may be 0 and is tried as itself and as at least 1, since only tensors with elements have a span.
    """
    steps: set[Size] = {1}
    remaining = [dim for dim, size in enumerate(shape) if size != 1]
    while remaining:
        fastest = next((dim for dim in reversed(remaining) if layout.strides[dim] in steps), None)
        if fastest is None:
            return False
        remaining.remove(fastest)
        step, size = layout.strides[fastest], shape[fastest]
        if size == 0:
            continue
        steps = {mul(step, size)} if isinstance(size, int) else {mul(step, size), mul(step, maximum(1, size))}
    return layout.offset == 0
