"""Padding: by a constant, or by elements of the tensor itself; negative padding crops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from litz_ir.dtypes import compute_dtype
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, Term, add, maximum, minimum, mul
from litz_lowering.context import Axes, LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules.scatter import zeros
from litz_lowering.rules.windows import at_least, below

_NAMES = ("1d", "2d", "3d")


def _before(pad: Sequence[Size], rank: int) -> list[Size]:
    """How many elements come before each dimension's first; ``pad`` lists (before, after), last dimension first."""
    count = len(pad) // 2
    return [0] * (rank - count) + [pad[2 * (count - 1 - k)] for k in range(count)]


@rule("aten.constant_pad_nd.default")
def constant_pad(
    ctx: LoweringContext, x: Tensor, pad: Sequence[Size], value: Expr | Size | float = 0
) -> Tensor:
    """``x``, surrounded by ``value``."""
    before, out = _before(pad, x.rank), ctx.output.shape

    def body(axes: Axes) -> Expr:
        place = [add(axis, mul(low, -1)) for axis, low in zip(axes, before)]
        conditions: list[Expr] = []
        for term, low, size, width in zip(place, before, x.shape, out):
            if isinstance(low, Term) or low > 0:
                conditions.append(at_least(term, 0))
            after = add(width, mul(add(size, low), -1))
            if isinstance(after, Term) or after > 0:
                conditions.append(below(term, size))
        return build.masked(build.logical_and(*conditions), x.load(place), ctx.number(value, x.dtype))

    return ctx.pointwise(body)


# --- reflection and replication ----------------------------------------


def _reflected(place: Size, size: Size) -> Size:
    """The element of which ``place`` is the image, in mirrors that stand on the first and the last element."""
    last = add(size, -1)
    from_last = add(last, mul(maximum(place, mul(place, -1)), -1))
    return add(last, mul(maximum(from_last, mul(from_last, -1)), -1))


def _nearest(place: Size, size: Size) -> Size:
    return minimum(maximum(place, 0), add(size, -1))


def _sources(
    axes: Axes, pad: Sequence[Size], shape: Sequence[Size], source: Callable[[Size, Size], Size]
) -> list[Size]:
    """The element that each point of the padded tensor takes."""
    before = _before(pad, len(shape))
    padded = len(shape) - len(pad) // 2
    return [
        axis if d < padded else source(add(axis, mul(low, -1)), size)
        for d, (axis, low, size) in enumerate(zip(axes, before, shape))
    ]


@rule(*(f"aten.reflection_pad{name}.default" for name in _NAMES))
def reflection_pad(ctx: LoweringContext, x: Tensor, padding: Sequence[Size]) -> Tensor:
    """``x``, continued by its mirror images."""
    return ctx.pointwise(lambda axes: x.load(_sources(axes, padding, x.shape, _reflected)))


@rule(*(f"aten.replication_pad{name}.default" for name in _NAMES))
def replication_pad(ctx: LoweringContext, x: Tensor, padding: Sequence[Size]) -> Tensor:
    """``x``, continued by its outermost elements."""
    return ctx.pointwise(lambda axes: x.load(_sources(axes, padding, x.shape, _nearest)))


@rule(*(f"aten.replication_pad{name}_backward.default" for name in _NAMES))
def replication_pad_backward(
    ctx: LoweringContext, grad: Tensor, x: Tensor, padding: Sequence[Size]
) -> Tensor:
    """Every gradient added to the element that it was made from."""
    wide = compute_dtype(grad.dtype)
    held = ctx.temporary(wide, x.shape)
    total = ctx.scatter(
        zeros(ctx, held), grad.shape, lambda axes: _sources(axes, padding, x.shape, _nearest),
        lambda axes: build.cast(grad.load(axes), wide), mode="add", type=held, name="total",
    )  # fmt: skip
    return ctx.pointwise(total.load)


@rule(*(f"aten.reflection_pad{name}_backward.default" for name in _NAMES))
def reflection_pad_backward(ctx: LoweringContext, grad: Tensor, x: Tensor, padding: Sequence[Size]) -> Tensor:
    """The gradient of an element and of its images, added up."""
    before, wide = _before(padding, x.rank), compute_dtype(grad.dtype)
    padded = x.rank - len(padding) // 2

    def total(axes: Axes, d: int, place: Axes) -> Expr:
        """The sum over the images along dimension ``d`` and those after it."""
        if d == x.rank:
            return build.cast(grad.load(place), wide)
        if d < padded:
            return total(axes, d + 1, (*place, axes[d]))
        low, width = before[d], grad.shape[d]
        last = add(x.shape[d], -1)
        itself = add(low, axes[d])
        left, right = add(low, mul(axes[d], -1)), add(low, mul(last, 2), mul(axes[d], -1))
        images = [
            (itself, build.logical_and(at_least(itself, 0), below(itself, width))),
            (left, build.logical_and(at_least(axes[d], 1), at_least(left, 0), below(left, width))),
            (right, build.logical_and(below(axes[d], last), at_least(right, 0), below(right, width))),
        ]
        parts = [
            build.masked(seen, total(axes, d + 1, (*place, image)), build.const(0, wide))
            for image, seen in images
        ]
        return build.op("add", build.op("add", parts[0], parts[1]), parts[2])

    return ctx.pointwise(lambda axes: total(axes, 0, ()))
