"""Antialiased resizing: each result is a weighted mean of a window of elements, one dimension after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from litz_ir.device import CPU
from litz_ir.dtypes import DType, compute_dtype, f64, i32, i64
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.indexing.known_index import Integers
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
class _Tap:
    """A term of a weighted sum along a dimension."""

    index: Size
    """Index of the element."""
    weight: Num
    inside: Num
    """True where the element belongs to the sum."""


_Taps = Callable[[Size, Size], _Tap]
"""Function from an index of the sums and a step to the term."""


@dataclass(frozen=True, slots=True)
class ResamplingWindow:
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
    backward: bool
    """True in the gradient, for which eager rounds differences to the dtype; both round where windows begin."""

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

    def rounded(self, difference: Num) -> Num:
        """A difference from a centre, as eager's gradient rounds it."""
        return difference.to(self.dtype).to(f64) if self.backward else difference

    def first(self, i: Size) -> Num:
        """First element in the window of result ``i``."""
        return f.maximum((self.rounded(self.centre(i) - self.support) + 0.5).to(i64), 0)

    def end(self, i: Size) -> Num:
        """Element after the last one in the window of result ``i``."""
        return f.minimum((self.rounded(self.centre(i) + self.support) + 0.5).to(i64), self.size)

    def element(self, i: Size, step: Size) -> _Tap:
        """Element ``step`` in the window of result ``i``."""
        here = self.first(i) + f.index(step)
        index = self.ctx.indirect(here.expr, self.size, check="clamped")
        return _Tap(index, self.weight(i, here), here < self.end(i))

    def weight(self, i: Size, here: Num) -> Num:
        """Weight of an element in the window of result ``i``, and some number outside the window."""
        distance = (self.rounded(here.to(f64) - self.centre(i)) + 0.5) / max(self.scale, 1.0)
        return _KERNELS[self.mode][1](distance.to(self.dtype))

    def norms(self) -> Tensor:
        """Sum of the weights of each result."""
        kind = self.ctx.temporary(self.dtype, (self.count,))

        def weight(outer: Axes, inner: Axes) -> Expr:
            tap = self.element(outer[0], inner[0])
            return f.where(tap.inside, tap.weight, 0).expr

        return self.ctx.reduction("sum", weight, (self.reach,), (kind,), (f"norm{self.d}",))[0]

    def shares(self) -> Callable[[Size, Num], Num]:
        """Function of a result and an element in its window to the element's share of the mean."""
        norms = self.norms()
        return lambda i, here: self.weight(i, here) / Num(norms.load((i,)))

    def resized(self, x: Tensor) -> Tensor:
        """Resize this dimension of ``x``."""
        norms = self.norms()

        def computed(i: Size, step: Size) -> _Tap:
            found = self.element(i, step)
            return replace(found, weight=found.weight / Num(norms.load((i,))))

        tap: _Taps = computed
        if x.device == CPU:  # a GPU computes weights faster than it starts a kernel for them

            def number(axes: Axes) -> Expr:
                return (self.end(axes[0]) - self.first(axes[0])).to(i32).expr

            def position(axes: Axes) -> Expr:
                return f.minimum(self.first(axes[1]) + f.index(axes[0]), self.size - 1).to(i32).expr

            numbers = self.ctx.pointwise(number, self.ctx.temporary(i32, (self.count,)), f"number{self.d}")
            tap = self.stored(numbers, position, computed, self.reach, self.size)
        return self.summed(x, tap, self.reach, self.count, f"along{self.d}")

    def returned(self, grad: Tensor) -> Tensor:
        """Gradient of the input of :meth:`resized`."""
        return self.gathered(grad) if grad.device == CPU else self.scattered(grad)

    def scattered(self, grad: Tensor) -> Tensor:
        """Add the shares of each result to the elements of its window."""
        norms, shape = self.norms(), [*grad.shape]
        shape[self.d] = self.size

        def index(axes: Axes) -> list[Size]:
            return [*axes[: self.d], self.element(axes[self.d], axes[-1]).index, *axes[self.d + 1 : -1]]

        def body(axes: Axes) -> Expr:
            tap = self.element(axes[self.d], axes[-1])
            share = f.where(tap.inside, tap.weight, 0) / Num(norms.load((axes[self.d],)))
            return (Num(build.cast(grad.load(axes[:-1]), self.dtype)) * share).expr

        kind = self.ctx.temporary(self.dtype, shape)
        over = (*grad.shape, self.reach)
        return self.ctx.scatter(
            zeros(self.ctx, kind), over, index, body, mode="add", type=kind, name=f"from{self.d}"
        )

    def gathered(self, grad: Tensor) -> Tensor:
        """Sum, at each element, the shares of the results whose windows have it, which are adjacent."""
        ctx, share = self.ctx, self.shares()
        bounds = ctx.temporary(i32, (self.size,))

        def below(bound: Callable[[Size], Num], reached: int, name: str) -> Tensor:
            """Number of results whose windows begin or end up to an element."""

            def counts(outer: Axes, inner: Axes) -> Expr:
                return (bound(inner[0]) <= f.index(outer[0]) + reached).to(i32).expr

            return ctx.reduction("sum", counts, (self.count,), (bounds,), (f"{name}{self.d}",))[0]

        ended, begun = below(self.end, 0, "ended"), below(self.first, 0, "begun")
        numbers = ctx.pointwise(
            lambda axes: (Num(begun.load(axes)) - Num(ended.load(axes))).expr, bounds, f"number{self.d}"
        )

        def position(axes: Axes) -> Expr:
            last = f.index(axes[0]) + Num(ended.load((axes[1],))).to(i64)
            return f.minimum(last, self.count - 1).to(i32).expr

        def tap(element: Size, step: Size) -> _Tap:
            result = ctx.indirect(position((step, element)), self.count, check="assumed")
            return _Tap(
                result, share(result, f.index(element)), f.index(step) < Num(numbers.load((element,))).to(i64)
            )

        longest = self.longest()
        return self.summed(
            grad,
            self.stored(numbers, position, tap, longest, self.count),
            longest,
            self.size,
            f"from{self.d}",
        )

    def bounds(self) -> tuple[Integers, Integers]:
        """Values of :meth:`first` and :meth:`end` for every result, as the gradient rounds them."""
        wide = np.dtype(np.float64 if self.dtype == f64 else np.float32)
        centre = ((np.arange(self.count) + 0.5) * self.scale).astype(wide).astype(np.float64)
        low, high = ((centre + way * self.support).astype(wide).astype(np.float64) + 0.5 for way in (-1, 1))
        return np.maximum(low.astype(np.int64), 0), np.minimum(high.astype(np.int64), self.size)

    def longest(self) -> int:
        """Largest number of results whose windows have one element."""
        first, end = self.bounds()
        elements = np.arange(self.size)
        begun = np.searchsorted(first, elements, side="right")
        return max(int((begun - np.searchsorted(end, elements, side="right")).max()), 1)

    def stored(
        self, numbers: Tensor, position: Callable[[Axes], Expr], tap: _Taps, reach: int, size: int
    ) -> _Taps:
        """Store the positions, as ``i32``, and the shares, by step and result, for all channels."""
        ctx, shape = self.ctx, (reach, numbers.shape[0])
        positions = ctx.pointwise(position, ctx.temporary(i32, shape), f"position{self.d}")

        def share(axes: Axes) -> Expr:
            found = tap(axes[1], axes[0])
            return f.where(found.inside, found.weight, 0).expr

        shares = ctx.pointwise(share, ctx.temporary(self.dtype, shape), f"share{self.d}")

        def read(i: Size, step: Size) -> _Tap:
            index = ctx.indirect(positions.load((step, i)), size, check="assumed")
            inside = f.index(step).to(i32) < Num(numbers.load((i,)))
            return _Tap(index, Num(shares.load((step, i))), inside)

        return read

    def summed(self, x: Tensor, tap: _Taps, reach: int, count: int, name: str) -> Tensor:
        """Weighted sums along this dimension of ``x``, which do not read what is outside a window."""
        shape = [*x.shape]
        shape[self.d] = count

        def body(outer: Axes, inner: Axes) -> Expr:
            found = tap(outer[self.d], inner[0])
            element = x.load((*outer[: self.d], found.index, *outer[self.d + 1 :]))
            product = Num(build.cast(element, self.dtype)) * found.weight
            return build.masked(found.inside.expr, product.expr, build.const(0, self.dtype))

        kind = self.ctx.temporary(self.dtype, shape)
        return self.ctx.reduction("sum", body, (reach,), (kind,), (name,))[0]


def _windows(
    ctx: LoweringContext, sizes: Sequence[Size], counts: Sequence[Size], corners: bool,
    scales: Sequence[float | None], dtype: DType, *, backward: bool = False,
) -> list[ResamplingWindow] | None:  # fmt: skip
    """Windows over both spatial dimensions; None where a size is symbolic."""
    mode = ctx.origin.operation.partition("_upsample_")[2].partition("2d")[0]
    wide = np.dtype(np.float64 if dtype == f64 else np.float32)
    found: list[ResamplingWindow] = []
    for d, size, count, factor in zip((2, 3), sizes, counts, scales, strict=True):
        if not isinstance(size, int) or not isinstance(count, int):
            return None
        if corners:
            scale = (size - 1) / (count - 1) if count > 1 else 0.0
        else:
            scale = 1 / factor if factor is not None and factor > 0 else size / count
        found.append(ResamplingWindow(ctx, d, size, count, float(wide.type(scale)), mode, dtype, backward))
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
        if window.size != window.count or x.device != CPU:  # a CPU copies equal sides, whatever the scale
            x = window.resized(x)
    return ctx.pointwise(x.load)


@rule(*(f"aten._upsample_{mode}2d_aa_backward.default" for mode in _KERNELS))
def resize_backward(
    ctx: LoweringContext, grad: Tensor, output_size: Sequence[Size], input_size: Sequence[Size],
    align_corners: bool, scales_h: float | None = None, scales_w: float | None = None,
) -> Tensor | Declined:  # fmt: skip
    """Gradient of the resized input."""
    dtype = compute_dtype(grad.dtype)
    windows = _windows(
        ctx, input_size[2:], output_size, align_corners, (scales_h, scales_w), dtype, backward=True
    )
    if windows is None:
        return _SYMBOLIC
    for window in windows:
        grad = window.returned(grad)
    return ctx.pointwise(grad.load)
