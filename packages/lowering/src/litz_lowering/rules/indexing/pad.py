"""Padding by a constant or by elements of the tensor; negative padding crops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from litz_ir.dtypes import compute_dtype
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, Term, add, maximum, minimum, mul
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions.windows import at_least, below
from litz_lowering.rules.indexing.scatter import zeros

_NAMES = ("1d", "2d", "3d")


def _before(pad: Sequence[Size], rank: int) -> list[Size]:
    """Padding before each dimension; ``pad`` lists (before, after) pairs, last dimension first."""
    count = len(pad) // 2
    return [0] * (rank - count) + [pad[2 * (count - 1 - k)] for k in range(count)]


@rule("aten.constant_pad_nd.default")
def constant_pad(
    ctx: LoweringContext, x: Tensor, pad: Sequence[Size], value: Expr | Size | float = 0
) -> Tensor:
    """Pad ``x`` with ``value``."""
    before, out = _before(pad, x.rank), ctx.output.shape

    def body(axes: Axes) -> Expr:
        source = [add(axis, mul(low, -1)) for axis, low in zip(axes, before)]
        conditions: list[Expr] = []
        for term, low, size, width in zip(source, before, x.shape, out):
            if isinstance(low, Term) or low > 0:
                conditions.append(at_least(term, 0))
            after = add(width, mul(add(size, low), -1))
            if isinstance(after, Term) or after > 0:
                conditions.append(below(term, size))
        return build.masked(build.logical_and(*conditions), x.load(source), ctx.number(value, x.dtype))

    return ctx.pointwise(body)


# --- reflection and replication ----------------------------------------


def _reflected(position: Size, size: Size) -> Size:
    """Index of the element at ``position`` after reflection at the first and the last element."""
    last = add(size, -1)
    from_last = add(last, mul(maximum(position, mul(position, -1)), -1))
    return add(last, mul(maximum(from_last, mul(from_last, -1)), -1))


def _nearest(position: Size, size: Size) -> Size:
    return minimum(maximum(position, 0), add(size, -1))


def _sources(
    axes: Axes, pad: Sequence[Size], shape: Sequence[Size], source: Callable[[Size, Size], Size]
) -> list[Size]:
    """Index of the element that a point of the padded tensor shows."""
    before = _before(pad, len(shape))
    padded = len(shape) - len(pad) // 2
    return [
        axis if d < padded else source(add(axis, mul(low, -1)), size)
        for d, (axis, low, size) in enumerate(zip(axes, before, shape))
    ]


@rule(*(f"aten.reflection_pad{name}.default" for name in _NAMES))
def reflection_pad(ctx: LoweringContext, x: Tensor, padding: Sequence[Size]) -> Tensor:
    """Pad ``x`` by reflection."""
    return ctx.pointwise(lambda axes: x.load(_sources(axes, padding, x.shape, _reflected)))


@rule(*(f"aten.replication_pad{name}.default" for name in _NAMES))
def replication_pad(ctx: LoweringContext, x: Tensor, padding: Sequence[Size]) -> Tensor:
    """Pad ``x`` with its outermost elements."""
    return ctx.pointwise(lambda axes: x.load(_sources(axes, padding, x.shape, _nearest)))


@rule(*(f"aten.replication_pad{name}_backward.default" for name in _NAMES))
def replication_pad_backward(
    ctx: LoweringContext, grad: Tensor, x: Tensor, padding: Sequence[Size]
) -> Tensor:
    """Add every gradient to the element that it was computed from."""
    wide = compute_dtype(grad.dtype)
    kind = ctx.temporary(wide, x.shape)
    total = ctx.scatter(
        zeros(ctx, kind), grad.shape, lambda axes: _sources(axes, padding, x.shape, _nearest),
        lambda axes: build.cast(grad.load(axes), wide), mode="add", type=kind, name="total",
    )  # fmt: skip
    return ctx.pointwise(total.load)


@rule(*(f"aten.reflection_pad{name}_backward.default" for name in _NAMES))
def reflection_pad_backward(ctx: LoweringContext, grad: Tensor, x: Tensor, padding: Sequence[Size]) -> Tensor:
    """Sum of the gradients of each element and of its reflections."""
    before, wide = _before(padding, x.rank), compute_dtype(grad.dtype)
    padded = x.rank - len(padding) // 2

    def total(axes: Axes, d: int, index: Axes) -> Expr:
        """Sum over the reflections along dimension ``d`` and later ones."""
        if d == x.rank:
            return build.cast(grad.load(index), wide)
        if d < padded:
            return total(axes, d + 1, (*index, axes[d]))
        low, width = before[d], grad.shape[d]
        last = add(x.shape[d], -1)
        itself = add(low, axes[d])
        mirrored_low, mirrored_high = add(low, mul(axes[d], -1)), add(low, mul(last, 2), mul(axes[d], -1))
        images = [
            (itself, build.logical_and(at_least(itself, 0), below(itself, width))),
            (
                mirrored_low,
                build.logical_and(
                    at_least(axes[d], 1), at_least(mirrored_low, 0), below(mirrored_low, width)
                ),
            ),
            (
                mirrored_high,
                build.logical_and(
                    below(axes[d], last), at_least(mirrored_high, 0), below(mirrored_high, width)
                ),
            ),
        ]
        terms = [
            build.masked(inside, total(axes, d + 1, (*index, image)), build.const(0, wide))
            for image, inside in images
        ]
        return build.op("add", build.op("add", terms[0], terms[1]), terms[2])

    return ctx.pointwise(lambda axes: total(axes, 0, ()))
