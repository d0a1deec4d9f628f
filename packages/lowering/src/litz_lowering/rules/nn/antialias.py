"""Antialiased resizing: each result is a weighted mean of a window of elements, one dimension after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from litz_ir.device import CPU
from litz_ir.dtypes import DType, compute_dtype, f64, i32, i64
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.indexing.scatter import zeros
from litz_lowering.rules.nn.resampling_kernels import keys, lanczos, triangle

_ResamplingKernel = Callable[[Num], Num]

_CUBIC = -0.5
"""Parameter of the cubic kernel in eager's antialiasing."""
_LOBES = 3
_KERNELS: dict[str, tuple[int, _ResamplingKernel]] = {
    "bilinear": (1, triangle),
    "bicubic": (2, lambda x: keys(x, _CUBIC)),
    "lanczos": (_LOBES, lambda x: lanczos(x, _LOBES)),
}
"""Support (distance from which the kernel is zero) and kernel of each mode."""

_SYMBOLIC = Declined("antialiased resizing needs static sizes")


@dataclass(frozen=True, slots=True)
class _ResamplingWindow:
    """Window of elements along dimension ``d`` over which each result is a weighted mean."""

    ctx: LoweringContext
    d: int
    """Dimension."""
    size: int
    """Size of the input along the dimension."""
    count: int
    """Size of the result along the dimension."""
    scale: float
    """Input elements per result element."""
    mode: str
    dtype: DType
    """Dtype in which weights are computed."""

    @property
    def support(self) -> float:
        """Distance from the centre at which weights become zero, in elements."""
        return _KERNELS[self.mode][0] * max(self.scale, 1.0)

    @property
    def reach(self) -> int:
        """Largest number of elements in a window."""
        return math.ceil(self.support) * 2 + 1

    def centre(self, i: Size) -> Num:
        """Centre of the window of result ``i``, rounded to the dtype as in eager."""
        return ((f.index(i).to(f64) + 0.5) * self.scale).to(self.dtype).to(f64)

    def first(self, i: Size) -> Num:
        """First element in the window of result ``i``."""
        return f.maximum((self.centre(i) - self.support + 0.5).to(i64), 0)

    def element(self, i: Size, step: Size) -> tuple[Size, Num]:
        """Index of element ``step`` in the window of result ``i``, and its weight; the weight is zero outside the
        window."""
        here = self.first(i) + f.index(step)
        end = f.minimum((self.centre(i) + self.support + 0.5).to(i64), self.size)
        distance = (here.to(f64) - self.centre(i) + 0.5) / max(self.scale, 1.0)
        weight = _KERNELS[self.mode][1](distance.to(self.dtype))
        index = self.ctx.indirect(here.expr, self.size, check="clamped")
        return index, f.where(here < end, weight, 0)

    def stored(self) -> tuple[Tensor, Tensor]:
        """Store the elements of each window, as ``i32``, and their shares, by step and result."""
        norms, ctx, shape = self.norms(), self.ctx, (self.reach, self.count)

        def position(axes: Axes) -> Expr:
            return f.minimum(self.first(axes[1]) + f.index(axes[0]), self.size - 1).to(i32).expr

        def share(axes: Axes) -> Expr:
            return (self.element(axes[1], axes[0])[1] / Num(norms.load((axes[1],)))).expr

        positions = ctx.pointwise(position, ctx.temporary(i32, shape), f"position{self.d}")
        return positions, ctx.pointwise(share, ctx.temporary(self.dtype, shape), f"share{self.d}")

    def norms(self) -> Tensor:
        """Sum of the weights of each result."""
        kind = self.ctx.temporary(self.dtype, (self.count,))
        return self.ctx.reduction(
            "sum", lambda i, r: self.element(i[0], r[0])[1].expr, (self.reach,), (kind,), (f"norm{self.d}",)
        )[0]

    def resized(self, x: Tensor) -> Tensor:
        """Resize this dimension of ``x``."""
        shape = [*x.shape]
        shape[self.d] = self.count
        # A GPU computes weights faster than it starts a kernel for them.
        stored = self.stored() if x.device == CPU else None
        norms = self.norms() if stored is None else stored[1]

        def tap(i: Size, step: Size) -> tuple[Size, Num]:
            if stored is None:
                index, weight = self.element(i, step)
                return index, weight / Num(norms.load((i,)))
            position, share = stored[0].load((step, i)), Num(stored[1].load((step, i)))
            return self.ctx.indirect(position, self.size, check="assumed"), share

        def body(outer: Axes, inner: Axes) -> Expr:
            index, share = tap(outer[self.d], inner[0])
            element = x.load((*outer[: self.d], index, *outer[self.d + 1 :]))
            return (Num(build.cast(element, self.dtype)) * share).expr

        kind = self.ctx.temporary(self.dtype, shape)
        return self.ctx.reduction("sum", body, (self.reach,), (kind,), (f"along{self.d}",))[0]

    def returned(self, grad: Tensor) -> Tensor:
        """Gradient of the input of :meth:`resized`."""
        norms, shape = self.norms(), [*grad.shape]
        shape[self.d] = self.size

        def index(axes: Axes) -> list[Size]:
            return [*axes[: self.d], self.element(axes[self.d], axes[-1])[0], *axes[self.d + 1 : -1]]

        def body(axes: Axes) -> Expr:
            share = self.element(axes[self.d], axes[-1])[1] / Num(norms.load((axes[self.d],)))
            return (Num(build.cast(grad.load(axes[:-1]), self.dtype)) * share).expr

        kind = self.ctx.temporary(self.dtype, shape)
        over = (*grad.shape, self.reach)
        return self.ctx.scatter(
            zeros(self.ctx, kind), over, index, body, mode="add", type=kind, name=f"from{self.d}"
        )


def _windows(
    ctx: LoweringContext, sizes: Sequence[Size], counts: Sequence[Size], corners: bool,
    scales: Sequence[float | None], dtype: DType,
) -> list[_ResamplingWindow] | None:  # fmt: skip
    """Windows over both spatial dimensions; None where a size is symbolic."""
    mode = ctx.origin.operation.partition("_upsample_")[2].partition("2d")[0]
    wide = np.dtype(np.float64 if dtype == f64 else np.float32)
    found: list[_ResamplingWindow] = []
    for d, size, count, factor in zip((2, 3), sizes, counts, scales, strict=True):
        if not isinstance(size, int) or not isinstance(count, int):
            return None
        if corners:
            scale = (size - 1) / (count - 1) if count > 1 else 0.0
        else:
            scale = 1 / factor if factor is not None and factor > 0 else size / count
        found.append(_ResamplingWindow(ctx, d, size, count, float(wide.type(scale)), mode, dtype))
    return found


@rule(*(f"aten._upsample_{mode}2d_aa.default" for mode in _KERNELS), takes="floats")
def resize(
    ctx: LoweringContext, x: Tensor, output_size: Sequence[Size], align_corners: bool,
    scales_h: float | None = None, scales_w: float | None = None,
) -> Tensor | Declined:  # fmt: skip
    """Resize both spatial dimensions, the last one first."""
    dtype = compute_dtype(x.dtype)
    windows = _windows(ctx, x.shape[2:], output_size, align_corners, (scales_h, scales_w), dtype)
    if windows is None:
        return _SYMBOLIC
    for window in reversed(windows):
        x = window.resized(x)
    return ctx.pointwise(x.load)


@rule(*(f"aten._upsample_{mode}2d_aa_backward.default" for mode in _KERNELS))
def resize_backward(
    ctx: LoweringContext, grad: Tensor, output_size: Sequence[Size], input_size: Sequence[Size],
    align_corners: bool, scales_h: float | None = None, scales_w: float | None = None,
) -> Tensor | Declined:  # fmt: skip
    """Gradient of the resized input."""
    dtype = compute_dtype(grad.dtype)
    windows = _windows(ctx, input_size[2:], output_size, align_corners, (scales_h, scales_w), dtype)
    if windows is None:
        return _SYMBOLIC
    for window in windows:
        grad = window.returned(grad)
    return ctx.pointwise(grad.load)
