"""Upsampling by nearest and linear interpolation, with source positions computed at compile time.

AOTAutograd decomposes most of these operators into gathers whose index tensors ``known_index`` recognises. These
rules are for graphs that contain the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.fx import Node

from litz_ir.dtypes import DType, compute_dtype, f64
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, add, minimum
from litz_lowering.aten.resampling_scales import effective_scales
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.indexing.known_index import Stair, fit

Floats = npt.NDArray[np.floating[Any]]

_RANKS = ("1d", "2d", "3d")
SYMBOLIC = Declined("resampling needs static sizes")
IRREGULAR = Declined("source positions have no short period")


@dataclass(frozen=True, slots=True)
class Resampled:
    """A dimension of ``size`` elements resampled to ``count``; ``scale`` is input elements per result, rounded as
    in eager."""

    size: int
    count: int
    scale: float
    dtype: DType

    def positions(self, shift: float, back: float) -> Floats:
        """``(i + shift)*scale - back`` for every result ``i``, in the dtype that eager computes in."""
        numpy_dtype = np.dtype(np.float64 if self.dtype == f64 else np.float32)
        each: Floats = np.arange(self.count).astype(numpy_dtype)
        return (each + numpy_dtype.type(shift)) * numpy_dtype.type(self.scale) - numpy_dtype.type(back)

    def stair(self, positions: Floats) -> Stair | None:
        """Index of the element at or before each position, clamped to the dimension."""
        return fit(np.clip(np.floor(positions).astype(np.int64), 0, self.size - 1))


def _dimensions(
    ctx: LoweringContext, x: Tensor, scales: Sequence[float | None], corners: bool = False
) -> list[Resampled] | None:
    """Resampling of each spatial dimension; None where sizes are symbolic or empty."""
    source, name = ctx.node.args[0], ctx.origin.operation.partition(".")[2].partition(".")[0]
    sizes = (*x.shape[2:], *ctx.output.shape[2:])
    given = [*scales, *(None for _ in range(x.rank - 2 - len(scales)))]
    if isinstance(source, Node) and all(isinstance(size, int) for size in sizes):
        given = effective_scales(name, source.meta["val"], ctx.output.shape[2:], given)
    dtype = compute_dtype(x.dtype) if x.dtype.is_float else compute_dtype(ctx.output.dtype)
    return resampled_dimensions(x.shape[2:], ctx.output.shape[2:], given, dtype, corners)


def resampled_dimensions(
    sizes: Sequence[Size],
    counts: Sequence[Size],
    scales: Sequence[float | None],
    dtype: DType,
    corners: bool = False,
) -> list[Resampled] | None:
    """Resampling of dimensions of ``sizes`` elements to ``counts``, with positions in ``dtype``; None where sizes are
    symbolic or empty."""
    found: list[Resampled] = []
    for size, count, factor in zip(sizes, counts, scales, strict=True):
        if not isinstance(size, int) or not isinstance(count, int) or size == 0 or count == 0:
            return None
        if corners:
            scale = _ratio(size - 1, count - 1, dtype) if count > 1 else 0.0
        else:
            scale = (
                _ratio(1, factor, dtype) if factor is not None and factor > 0 else _ratio(size, count, dtype)
            )
        found.append(Resampled(size, count, scale, dtype))
    return found


def _ratio(a: float, b: float, dtype: DType) -> float:
    return a / b if dtype == f64 else float(np.float32(a / b))


def listed_scales(scales: tuple[Any, ...]) -> list[float | None]:
    """Scales, one per dimension; ``vec`` overloads list them, others have an argument for each."""
    if len(scales) == 1 and isinstance(scales[0], list | tuple):
        return list(scales[0])
    return list(scales)


def _nearest(shift: float) -> Callable[..., Tensor | Declined]:
    def lower(
        ctx: LoweringContext, x: Tensor, output_size: Any, *scales: Any, **named: Any
    ) -> Tensor | Declined:
        """Element whose cell contains each result."""
        dimensions = _dimensions(ctx, x, listed_scales((*scales, *named.values())))
        if dimensions is None:
            return SYMBOLIC
        stairs = [d.stair(d.positions(shift, 0.0)) for d in dimensions]
        known = [stair for stair in stairs if stair is not None]
        if len(known) < len(stairs):
            return IRREGULAR
        return ctx.pointwise(
            lambda axes: x.load((*axes[:2], *(s.term(i) for s, i in zip(known, axes[2:], strict=True))))
        )

    return lower


for _rank in _RANKS:
    rule(f"aten.upsample_nearest{_rank}.default", f"aten.upsample_nearest{_rank}.vec")(_nearest(0.0))
    rule(f"aten._upsample_nearest_exact{_rank}.default", f"aten._upsample_nearest_exact{_rank}.vec")(
        _nearest(0.5)
    )


@rule(
    *(f"aten.upsample_{name}.{overload}" for name in ("linear1d", "bilinear2d", "trilinear3d")
      for overload in ("default", "vec")),
    takes="floats",
)  # fmt: skip
def upsample_linear(
    ctx: LoweringContext, x: Tensor, output_size: Any, align_corners: bool, *scales: Any, **named: Any
) -> Tensor | Declined:
    """Weighted mean of the two nearest elements along each dimension."""
    given = listed_scales((*scales, *named.values()))
    dimensions = _dimensions(ctx, x, given, align_corners)
    if dimensions is None:
        return SYMBOLIC
    shift = 0.0 if align_corners else 0.5
    stairs = [d.stair(np.maximum(d.positions(shift, shift), 0.0)) for d in dimensions]
    known = [stair for stair in stairs if stair is not None]
    if len(known) < len(stairs):
        return IRREGULAR

    def weight(d: Resampled, stair: Stair, i: Size) -> Num:
        """Weight of the later of the two elements."""
        position = f.maximum((f.index(i).to(d.dtype) + shift) * d.scale - shift, 0.0)
        return f.minimum(f.maximum(position - f.index(stair.term(i)).to(d.dtype), 0.0), 1.0)

    def mixed(axes: Axes, index: Axes) -> Num:
        """Interpolation along the dimensions that ``index`` does not contain yet."""
        if len(index) == x.rank:
            return Num(build.cast(x.load(index), compute_dtype(x.dtype)))
        k = len(index) - 2
        first = known[k].term(axes[len(index)])
        second = minimum(add(first, 1), dimensions[k].size - 1)
        share = weight(dimensions[k], known[k], axes[len(index)])
        return mixed(axes, (*index, first)) * (1 - share) + mixed(axes, (*index, second)) * share

    def body(axes: Axes) -> Expr:
        return mixed(axes, axes[:2]).expr

    return ctx.pointwise(body)
