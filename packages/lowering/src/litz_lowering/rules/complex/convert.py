"""Conversions between complex and real tensors: views of the parts, casts and copies."""

from __future__ import annotations

import warnings
from typing import Any

from litz_ir.scalar import Expr
from litz_lowering.contexts.context import Axes, Complex, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import complex_rule
from litz_lowering.rules.complex.numbers import complex_pointwise, operand, truth
from litz_lowering.rules.indexing.slice_scatter import in_place_of

_DISCARDS = "Casting complex values to real discards the imaginary part"
"""Warning of eager."""


@complex_rule("aten.view_as_real.default", "aten.view_as_real_copy.default")
def view_as_real(ctx: LoweringContext, x: Complex) -> Tensor:
    """View of the parts as a last dimension of size 2."""
    return ctx.view(x.pairs, lambda axes: axes, aliases="_copy." not in str(ctx.node.target))


@complex_rule("aten.view_as_complex.default", "aten.view_as_complex_copy.default")
def view_as_complex(ctx: LoweringContext, x: Tensor) -> Complex:
    """View of a last dimension of size 2 as complex numbers."""
    return Complex(ctx.view(x, lambda axes: axes, aliases="_copy." not in str(ctx.node.target)))


@complex_rule(
    "aten._to_copy.default",
    "aten.clone.default",
    "prims.convert_element_type.default",
    "aten.contiguous.default",
    "aten.lift_fresh_copy.default",
    "aten.alias_copy.default",
)
def copy(ctx: LoweringContext, x: Any, *_: Any, **__: Any) -> Tensor | Complex | Declined:
    """Copy with the dtype, strides and device of the result."""
    if x.device != ctx.output.device:
        return Declined("the copy is between devices", is_intended=True)
    return _converted(ctx, x)


@complex_rule("aten.copy.default")
def copy_from(
    ctx: LoweringContext, x: Any, source: Any, non_blocking: bool = False
) -> Tensor | Complex | Declined:
    """Copy of ``source``, broadcast and cast to the type of ``x``."""
    if source.device != ctx.output.device:
        return Declined("the copy is between devices", is_intended=True)

    def make() -> Tensor:
        made = _converted(ctx, source)
        return made.pairs if isinstance(made, Complex) else made

    made = in_place_of(ctx, x.pairs if isinstance(x, Complex) else x, make)
    return Complex(made) if isinstance(x, Complex) and isinstance(made, Tensor) else made


@complex_rule("aten.copy_.default")
def copy_onto(
    ctx: LoweringContext, target: Any, source: Any, non_blocking: bool = False
) -> Tensor | Complex | Declined:
    """Overwrite ``target``; later operations read the new version."""
    if source.device != target.device:
        return Declined("the copy is between devices", is_intended=True)
    memory = target.pairs if isinstance(target, Complex) else target
    same_dtype = isinstance(source, Complex) == isinstance(target, Complex) and source.dtype == target.dtype
    if same_dtype and source.shape == target.shape:
        value_memory = source.pairs if isinstance(source, Complex) else source
    elif isinstance(target, Complex):
        value = operand(ctx, source, target.dtype)
        kind = ctx.temporary(target.dtype, memory.shape, target.device)
        value_memory = complex_pointwise(ctx, value, kind, "source").pairs
    else:
        kind = ctx.temporary(target.dtype, target.shape, target.device)
        value_memory = ctx.pointwise(lambda axes: _discarding(ctx, source, axes), kind, "source")
    made = ctx.mutation(memory, value_memory)
    return Complex(made) if isinstance(target, Complex) else made


def _converted(ctx: LoweringContext, source: Any) -> Tensor | Complex:
    if ctx.complex_outputs[0]:
        return complex_pointwise(ctx, operand(ctx, source, ctx.output.dtype))
    return ctx.pointwise(lambda axes: _discarding(ctx, source, axes))


def _discarding(ctx: LoweringContext, source: Complex, axes: Axes) -> Expr:
    """Real part; for bool, True where a part is nonzero."""
    if ctx.output.dtype.is_bool:
        return truth(ctx, source)(axes).expr
    warnings.warn(_DISCARDS, UserWarning, stacklevel=2)
    return source.at(axes, 0)
