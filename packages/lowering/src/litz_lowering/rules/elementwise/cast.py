"""Casts and copies to another dtype, layout or memory."""

from __future__ import annotations

from typing import Any

from litz_lowering.contexts.context import Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.rules.indexing.slice_scatter import in_place_of


@rule(
    "aten._to_copy.default",
    "aten.clone.default",
    "prims.convert_element_type.default",
    "quantized_decomposed.convert_element_type.no_fuse",
    "aten.contiguous.default",
    "aten.lift_fresh_copy.default",
    "aten.alias_copy.default",
    "aten.detach_copy.default",
    moves=True,
)
def copy(ctx: LoweringContext, x: Any, *_: Any, **__: Any) -> Tensor | Declined:
    """Copy with the dtype, strides and device of the result. ``vmap`` casts Python numbers so, whose copy is filled."""
    if not isinstance(x, Tensor):
        return ctx.pointwise(lambda axes: ctx.number(x, ctx.output.dtype))
    if x.device != ctx.output.device:
        return Declined("the copy is between devices", is_intended=True)
    return ctx.pointwise(x.load)


@rule("aten.copy.default", moves=True)
def copy_from(
    ctx: LoweringContext, x: Tensor, source: Tensor, non_blocking: bool = False
) -> Tensor | Declined:
    """Copy of ``source``, broadcast and cast to the type of ``x``."""
    if source.device != ctx.output.device:
        return Declined("the copy is between devices", is_intended=True)
    return in_place_of(ctx, x, lambda: ctx.pointwise(source.at))


@rule("aten.copy_.default", moves=True)
def copy_onto(
    ctx: LoweringContext, target: Tensor, source: Tensor, non_blocking: bool = False
) -> Tensor | Declined:
    """Overwrite ``target``; later operations read the new version."""
    if source.device != target.device:
        return Declined("the copy is between devices", is_intended=True)
    if source.name == target.name:
        return target
    if source.dtype != target.dtype or source.shape != target.shape:
        kind = ctx.temporary(target.dtype, target.shape, target.device)
        source = ctx.pointwise(source.at, kind, "source")
    return ctx.mutation(target, source)


@rule("aten.fill.Scalar", "aten.fill.Tensor")
def fill(ctx: LoweringContext, x: Tensor, value: Any) -> Tensor:
    """Fill with ``value``."""
    if isinstance(value, Tensor):
        return ctx.pointwise(lambda axes: value.load(()))
    return ctx.pointwise(lambda axes: ctx.number(value, ctx.output.dtype))


@rule("aten.view.dtype")
def bitcast(ctx: LoweringContext, x: Tensor, dtype: Any) -> Tensor | Declined:
    """Reinterpret the bits as another dtype of equal width."""
    if x.dtype.bits != ctx.output.dtype.bits or x.dtype.is_bool != ctx.output.dtype.is_bool:
        return Declined("the view changes the width of the dtype")
    return ctx.view(x, lambda axes: axes)
