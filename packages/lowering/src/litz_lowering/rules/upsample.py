"""Resampling by fixed factors: nearest and linear interpolation, the source positions worked out while lowering.

AOTAutograd takes most of these apart itself, into gathers whose index tensors ``known_index`` recognises; these rules
serve graphs that keep them whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from litz_ir.dtypes import DType, compute_dtype, f64
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, add, minimum
from litz_lowering.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules import formula as f
from litz_lowering.rules.formula import Num
from litz_lowering.rules.known_index import Stair, fit

Floats = npt.NDArray[np.floating[Any]]

_RANKS = ("1d", "2d", "3d")
_SYMBOLIC = Declined("resampling between sizes that are not known")
_CROOKED = Declined("source positions that follow no short period")


@dataclass(frozen=True, slots=True)
class Resampled:
    """A dimension of ``size`` elements resampled to ``count``; ``scale`` is elements per result, as eager rounds it."""

    size: int
    count: int
    scale: float
    dtype: DType

    def positions(self, shift: float, back: float) -> Floats:
        """``(i + shift)*scale - back`` for every result ``i``, computed in the dtype that eager computes it in."""
        held = np.dtype(np.float64 if self.dtype == f64 else np.float32)
        each: Floats = np.arange(self.count).astype(held)
        return (each + held.type(shift)) * held.type(self.scale) - held.type(back)

    def stair(self, positions: Floats) -> Stair | None:
        """The element at or before each position, as far as there are elements."""
        return fit(np.clip(np.floor(positions).astype(np.int64), 0, self.size - 1))


def _dimensions(
    ctx: LoweringContext, x: Tensor, scales: Sequence[float | None], corners: bool = False
) -> list[Resampled] | None:
    """How each spatial dimension is resampled; None where its sizes are symbolic or empty."""
    given = [*scales, *(None for _ in range(x.rank))]
    dtype = compute_dtype(x.dtype) if x.dtype.is_float else compute_dtype(ctx.output.dtype)
    found: list[Resampled] = []
    for size, count, factor in zip(x.shape[2:], ctx.output.shape[2:], given):
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


def _listed(scales: tuple[Any, ...]) -> list[float | None]:
    """One scale per dimension: ``vec`` overloads list them, the others name each."""
    if len(scales) == 1 and isinstance(scales[0], list | tuple):
        return list(scales[0])
    return list(scales)


def _nearest(shift: float) -> Callable[..., Tensor | Declined]:
    def lower(
        ctx: LoweringContext, x: Tensor, output_size: Any, *scales: Any, **named: Any
    ) -> Tensor | Declined:
        """The element whose cell holds each result."""
        dimensions = _dimensions(ctx, x, _listed((*scales, *named.values())))
        if dimensions is None:
            return _SYMBOLIC
        stairs = [d.stair(d.positions(shift, 0.0)) for d in dimensions]
        known = [stair for stair in stairs if stair is not None]
        if len(known) < len(stairs):
            return _CROOKED
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
    """The two nearest elements along each dimension, weighted by how close they are."""
    given = _listed((*scales, *named.values()))
    dimensions = _dimensions(ctx, x, given, align_corners)
    if dimensions is None:
        return _SYMBOLIC
    shift = 0.0 if align_corners else 0.5
    stairs = [d.stair(np.maximum(d.positions(shift, shift), 0.0)) for d in dimensions]
    known = [stair for stair in stairs if stair is not None]
    if len(known) < len(stairs):
        return _CROOKED

    def weight(d: Resampled, stair: Stair, i: Size) -> Num:
        """The share of the later of the two elements."""
        position = f.maximum((f.index(i).to(d.dtype) + shift) * d.scale - shift, 0.0)
        return f.minimum(f.maximum(position - f.index(stair.term(i)).to(d.dtype), 0.0), 1.0)

    def mixed(axes: Axes, place: Axes) -> Num:
        """The interpolation along the dimensions that ``place`` does not reach yet."""
        if len(place) == x.rank:
            return Num(build.cast(x.load(place), compute_dtype(x.dtype)))
        k = len(place) - 2
        first = known[k].term(axes[len(place)])
        second = minimum(add(first, 1), dimensions[k].size - 1)
        share = weight(dimensions[k], known[k], axes[len(place)])
        return mixed(axes, (*place, first)) * (1 - share) + mixed(axes, (*place, second)) * share

    def body(axes: Axes) -> Expr:
        return mixed(axes, axes[:2]).expr

    return ctx.pointwise(body)
