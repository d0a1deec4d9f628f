"""Gradients of nearest and linear resizing: each element of the input sums what the results that read it pass on.

The sums gather, so that lanes are adjacent elements of the input. Those of nearest resizing find the results by index
terms; those of linear resizing are taken along one dimension after the other, with tables of positions and weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from litz_ir.dtypes import compute_dtype, f64, i64
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, mul
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.indexing.known_index import Integers, Inverse
from litz_lowering.rules.nn.antialias import ResamplingWindow
from litz_lowering.rules.nn.resampling_kernels import triangle
from litz_lowering.rules.nn.upsample import (
    IRREGULAR,
    SYMBOLIC,
    Resampled,
    listed_scales,
    resampled_dimensions,
)


@dataclass(frozen=True, slots=True)
class _EveryResult:
    """Results that read the only element of a dimension: all ``extent``."""

    extent: int

    def position(self, value: Size, number: Size) -> Size:
        """The ``number``-th result."""
        return number

    def conditions(self, value: Size, number: Size) -> list[Expr]:
        """No conditions."""
        return []


def _readers(dimension: Resampled, shift: float) -> Inverse | _EveryResult | None:
    """Results that read each element of a dimension; None where they form no staircase."""
    if dimension.size == 1:
        return _EveryResult(dimension.count)
    stair = dimension.stair(dimension.positions(shift, 0.0))
    return None if stair is None else stair.inverse(dimension.size)


def _effective_scales(
    shape: Sequence[Size], resized: Sequence[Size], scales: tuple[Any, ...], ratios: tuple[int, ...]
) -> list[float | None]:
    """Scales that eager's gradients use: none between sizes whose ratio is one of ``ratios``."""
    given = listed_scales(scales)
    given += [None] * (len(shape) - 2 - len(given))
    pairs = zip(shape[2:], resized[2:], given, strict=True)
    return [None if any(after == mul(before, r) for r in ratios) else scale for before, after, scale in pairs]


def _nearest_backward(shift: float) -> Callable[..., Tensor | Declined]:
    def lower(
        ctx: LoweringContext,
        grad: Tensor,
        output_size: Any,
        input_size: Sequence[Size],
        *scales: Any,
        **named: Any,
    ) -> Tensor | Declined:
        """Sum of the gradients of the results that are copies of an element."""
        kind, wide = ctx.output, compute_dtype(grad.dtype)
        given = _effective_scales(kind.shape, grad.shape, (*scales, *named.values()), () if shift else (1, 2))
        dimensions = resampled_dimensions(kind.shape[2:], grad.shape[2:], given, wide)
        if dimensions is None:
            return SYMBOLIC
        inverses = [_readers(dimension, shift) for dimension in dimensions]
        readers = [inverse for inverse in inverses if inverse is not None]
        if len(readers) < len(inverses):
            return IRREGULAR

        def body(point: Axes, numbers: Axes) -> Expr:
            results, conditions = list(point[:2]), []
            for reader, element, number in zip(readers, point[2:], numbers, strict=True):
                results.append(reader.position(element, number))
                conditions += reader.conditions(element, number)
            value = build.cast(grad.load(tuple(results)), wide)
            if not conditions:
                return value
            return build.masked(build.logical_and(*conditions), value, build.const(0, wide))

        over = [reader.extent for reader in readers]
        if kind.dtype == wide:
            return ctx.reduction("sum", body, over, (kind,))[0]
        (total,) = ctx.reduction("sum", body, over, (ctx.temporary(wide, kind.shape),), ("total",))
        return ctx.pointwise(total.load)

    return lower


for _rank in ("1d", "2d", "3d"):
    rule(f"aten.upsample_nearest{_rank}_backward.default")(_nearest_backward(0.0))
    rule(f"aten._upsample_nearest_exact{_rank}_backward.default")(_nearest_backward(0.5))


@dataclass(frozen=True, slots=True)
class _LinearWindow(ResamplingWindow):
    """The two elements along a dimension between which each result is interpolated."""

    corners: bool = False

    def position(self, i: Size) -> Num:
        """Position of result ``i`` among the elements, rounded as in eager and inside the dimension."""
        scaled = (self.offset(f.index(i).to(f64)) * self.scale).to(self.dtype).to(f64)
        exact = scaled if self.corners else (scaled - 0.5).to(self.dtype).to(f64)
        return f.minimum(f.maximum(exact, 0.0), self.size - 1.0)

    def offset(self, i: Num) -> Num:
        """Position of result ``i`` among the results."""
        return i if self.corners else i + 0.5

    def first(self, i: Size) -> Num:
        """Element at or before result ``i``."""
        return self.position(i).to(i64)

    def end(self, i: Size) -> Num:
        """Element after the two."""
        return f.minimum(self.first(i) + 2, self.size)

    def weight(self, i: Size, here: Num) -> Num:
        """Weight of an element, which falls with its distance."""
        return triangle((here.to(f64) - self.position(i)).to(self.dtype))

    def shares(self) -> Callable[[Size, Num], Num]:
        """The weights, whose sum is one."""
        return self.weight

    def bounds(self) -> tuple[Integers, Integers]:
        """Values of :meth:`first` and :meth:`end` for every result."""
        wide = np.dtype(np.float64 if self.dtype == f64 else np.float32)
        indices = np.arange(self.count, dtype=np.float64)
        if self.corners:
            positions = (indices * self.scale).astype(wide).astype(np.float64)
        else:
            scaled = ((indices + 0.5) * self.scale).astype(wide).astype(np.float64)
            positions = (scaled - 0.5).astype(wide).astype(np.float64)
        first = np.clip(positions, 0, self.size - 1).astype(np.int64)
        return first, np.minimum(first + 2, self.size)


@rule(*(f"aten.upsample_{name}_backward.default" for name in ("linear1d", "bilinear2d", "trilinear3d")))
def upsample_linear_backward(
    ctx: LoweringContext, grad: Tensor, output_size: Any, input_size: Sequence[Size], align_corners: bool,
    *scales: Any, **named: Any,
) -> Tensor | Declined:  # fmt: skip
    """Sum of the weighted gradients of the results between an element and its neighbours."""
    kind, wide = ctx.output, compute_dtype(grad.dtype)
    given = _effective_scales(kind.shape, grad.shape, (*scales, *named.values()), (1,))
    dimensions = resampled_dimensions(kind.shape[2:], grad.shape[2:], given, wide, align_corners)
    if dimensions is None:
        return SYMBOLIC
    for d, dimension in enumerate(dimensions, 2):
        window = _LinearWindow(
            ctx, d, dimension.size, dimension.count, dimension.scale, "bilinear", wide, True, align_corners
        )
        grad = window.gathered(grad)
    return ctx.pointwise(grad.load)
