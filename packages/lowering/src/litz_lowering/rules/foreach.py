"""Operators over lists of tensors: rows of the pointwise table, applied to each element."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from litz_ir.dtypes import f32
from litz_ir.scalar import build
from litz_lowering.contexts.context import Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import REGISTRY, rule
from litz_lowering.rules.elementwise.pointwise import ROWS, PointwiseRow, lower_pointwise
from litz_lowering.rules.indexing.slice_scatter import in_place_of
from litz_lowering.rules.reductions.reduce import amax, vector_norm

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round "
    "sigmoid sign sin sinh sqrt tan tanh trunc rsqrt"
).split()
_BINARY = {
    "add": "add.Tensor",
    "sub": "sub.Tensor",
    "mul": "mul.Tensor",
    "div": "div.Tensor",
    "pow": "pow.Tensor_Tensor",
    "maximum": "maximum.default",
    "minimum": "minimum.default",
    "clamp_min": "clamp_min.Tensor",
    "clamp_max": "clamp_max.Tensor",
}


def _each(
    ctx: LoweringContext, entry: PointwiseRow, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor, ...]:
    """Apply a row to every element; lists among the arguments are indexed by the element."""
    results: list[Tensor] = []
    for position in range(len(ctx.outputs)):
        own = tuple(a[position] if isinstance(a, tuple) else a for a in args)
        results.append(lower_pointwise(ctx, entry, own, kwargs, position))
    return tuple(results)


def _serve(row: PointwiseRow, *overloads: str) -> None:
    entry = replace(row, on_gpus=None)  # eager's kernels for lists divide

    def lower_each(ctx: LoweringContext, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        return _each(ctx, entry, args, kwargs)

    REGISTRY.add(lower_each, *(f"aten._foreach_{name}" for name in overloads))


for _name in _UNARY:
    _serve(ROWS[f"{_name}.default"], f"{_name}.default")
for _name, _row in _BINARY.items():
    _serve(ROWS[_row], f"{_name}.List", f"{_name}.Scalar", f"{_name}.ScalarList", f"{_name}.Tensor")
for _name in ("addcmul", "addcdiv"):
    _serve(ROWS[f"{_name}.default"], f"{_name}.Scalar", f"{_name}.ScalarList")
_serve(ROWS["pow.Scalar"], "pow.ScalarAndTensor")
_serve(ROWS["lerp.Tensor"], "lerp.List", "lerp.Scalar", "lerp.ScalarList")


@rule("aten._foreach_copy.default", moves=True)
def foreach_copy(ctx: LoweringContext, self: tuple[Tensor, ...], src: tuple[Tensor, ...], *_: Any) -> Any:
    """Cast each source to the type of its target."""
    if any(a.device != b.device for a, b in zip(self, src)):
        return Declined("the copy is between devices", is_intended=True)
    copies: list[Tensor] = []
    for k, (target, source) in enumerate(zip(self, src, strict=True)):
        make = partial(ctx.pointwise, source.at, ctx.outputs[k], str(k))
        copy = in_place_of(ctx, target, make, k)
        if isinstance(copy, Declined):
            return copy
        copies.append(copy)
    return tuple(copies)


@rule("aten._foreach_clone.default")
def foreach_clone(ctx: LoweringContext, self: tuple[Tensor, ...], **_: Any) -> tuple[Tensor, ...]:
    """Copy each tensor."""
    return tuple(ctx.pointwise(t.load, ctx.outputs[k], str(k)) for k, t in enumerate(self))


@rule("aten._foreach_zero.default")
def foreach_zero(ctx: LoweringContext, self: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Zeros of each tensor's type."""
    return tuple(
        ctx.pointwise(lambda _: build.const(0, f32), kind, str(k)) for k, kind in enumerate(ctx.outputs)
    )


@rule("aten._foreach_norm.Scalar")
def foreach_norm(
    ctx: LoweringContext, self: tuple[Tensor, ...], ord: float = 2, dtype: Any = None
) -> tuple[Tensor, ...]:
    """``ord``-norm of each tensor, as gradient clipping needs."""
    return tuple(vector_norm(ctx.of_result(k), t, ord) for k, t in enumerate(self))


@rule("aten._foreach_max.default")
def foreach_max(ctx: LoweringContext, self: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Largest element of each tensor."""
    return tuple(amax(ctx.of_result(k), t) for k, t in enumerate(self))
