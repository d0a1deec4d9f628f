"""Fractional max pooling, whose window positions derive from random samples (Graham, 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.dtypes import b1, i64
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, add, product
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.expressions.index_maps import flatten
from litz_lowering.rules.nn.window_maximum import WindowSearch, added_at_maxima, largest


@dataclass(frozen=True, slots=True)
class _FractionalPool:
    """Windows of ``kernel`` elements over the last dimensions of ``x``."""

    ctx: LoweringContext
    x: Tensor
    samples: Tensor
    """Number in [0, 1) for each batch, channel and dimension."""
    kernel: Sequence[int]
    count: Sequence[int]
    """Number of windows along each dimension."""
    order: Sequence[int]
    """Position of each dimension's number in ``samples``."""

    @property
    def lead(self) -> int:
        return self.x.rank - len(self.kernel)

    @property
    def sizes(self) -> tuple[Size, ...]:
        return self.x.shape[self.lead :]

    def start(self, outer: Axes, d: int) -> Size:
        """Start of the window of result ``outer`` along dimension ``d``, truncated as in eager."""
        size, kernel, count = self.sizes[d], self.kernel[d], self.count[d]
        last = f.index(add(size, -kernel))
        if count == 1:
            return add(size, -kernel)
        batch = (0,) * (2 - self.lead)
        sample = Num(self.samples.load((*batch, *outer[: self.lead], self.order[d])))
        step = last.to(sample.dtype) / (count - 1)
        here = outer[self.lead + d]
        moved = ((f.index(here).to(sample.dtype) + sample) * step).to(i64) - (sample * step).to(i64)
        begin = f.where(f.index(here).eq(count - 1), last, moved)
        return self.ctx.indirect(begin.expr, size, check="clamped")

    def positions(self, outer: Axes, steps: Axes) -> list[Size]:
        """Element at ``steps`` of a window, along each dimension."""
        return [add(self.start(outer, d), step) for d, step in enumerate(steps)]


@rule("aten.fractional_max_pool2d.default", "aten.fractional_max_pool3d.default")
def fractional_max_pool(
    ctx: LoweringContext,
    x: Tensor,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    random_samples: Tensor,
) -> tuple[Tensor, ...] | Declined:
    """Maximum of each window, and its row-major position in the spatial dimensions."""
    spatial = len(output_size)
    if not all(isinstance(size, int) for size in (*kernel_size, *output_size)):
        return Declined("the sizes of windows and results are symbolic")
    order = (1, 0) if spatial == 2 else (0, 1, 2)
    pool = _FractionalPool(ctx, x, random_samples, kernel_size, output_size, order)

    def value(outer: Axes, steps: Axes) -> Expr:
        at = pool.positions(outer, steps)
        clamped = [ctx.indirect(build.index(p), s, check="clamped") for p, s in zip(at, pool.sizes)]
        return x.load((*outer[: pool.lead], *clamped))

    def position(outer: Axes, steps: Axes) -> Size:
        return flatten(pool.positions(outer, steps), pool.sizes)

    def inside(outer: Axes, steps: Axes) -> Expr:
        return build.const(True, b1)

    def first(outer: Axes) -> Size:
        return position(outer, (0,) * spatial)

    return largest(ctx, WindowSearch(kernel_size, value, position, inside, first, product(pool.sizes)))


@rule("aten.fractional_max_pool2d_backward.default", "aten.fractional_max_pool3d_backward.default")
def fractional_max_pool_backward(
    ctx: LoweringContext,
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    indices: Tensor,
) -> Tensor:
    """Add the gradient of each window to the element that was its maximum."""
    return added_at_maxima(ctx, grad, x.shape[x.rank - len(output_size) :], indices)
