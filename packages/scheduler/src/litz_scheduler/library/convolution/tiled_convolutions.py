"""Convolutions of f32 on a CPU as sums over prepacked weights, which kernels compute in tiles with their epilogues."""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.dtypes import f32
from litz_ir.loops import Axis, NamedCombiner, Pointwise, Reduction, TensorType, Value, contiguous
from litz_ir.origin import Origin
from litz_ir.scalar import Expr, Load, const, index, logical_and, masked, op
from litz_ir.symbols import Size, add, floordiv, mod, mul, symbol

FEW_CHANNELS = 16
"""Fewest input channels that are worth a layout in which they are adjacent; fewer are gathered one by one."""
GATHERED_DEPTH = 4096
"""Most summed elements of convolutions of few channels, whose pixels are copied to a cache."""


@dataclass(frozen=True, slots=True)
class TiledConvolution:
    """A convolution in two dimensions without groups, or with a group for each channel, of known sizes."""

    source: tuple[int, ...]
    """Shape of the input: batch, channels, rows, columns."""
    weight: tuple[int, ...]
    """Shape of the weight: output channels, channels of a group, rows, columns."""
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    columns: int
    """Columns of a panel."""

    @property
    def depthwise(self) -> bool:
        """True for a group for each channel."""
        return self.weight[1] == 1 and self.weight[0] == self.source[1] and self.source[1] > 1

    @property
    def gathered(self) -> bool:
        """True for few input channels, which are read in any layout."""
        return not self.depthwise and self.source[1] < FEW_CHANNELS

    @property
    def prepacked_shape(self) -> tuple[int, ...]:
        """Shape of the prepacked weight."""
        outputs, channels, *taps = self.weight
        if self.depthwise:
            return (*taps, outputs)
        inner = (channels, *taps) if self.gathered else (*taps, channels)
        return (-(-outputs // self.columns), *inner, self.columns)

    def prepack(self, name: str, weight: str, scale: str | None, origin: Origin) -> Pointwise:
        """Return the loop that prepacks the weight, times ``scale`` for each output channel."""
        shape = self.prepacked_shape
        axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(shape))
        at: list[Size] = [symbol(axis.name) for axis in axes]
        if self.depthwise:
            body = _scaled(Load(weight, (at[2], 0, at[0], at[1]), f32), scale, at[2])
        else:
            number = add(mul(at[0], self.columns), at[4])
            inner: tuple[Size, ...] = (at[1], at[2], at[3]) if self.gathered else (at[3], at[1], at[2])
            body = _scaled(Load(weight, (number, *inner), f32), scale, number)
            if self.weight[0] % self.columns:
                known = op("lt", index(number), index(self.weight[0]))
                body = masked(known, body, const(0.0, f32))
        value = Value(name, TensorType(f32, shape, contiguous(shape)))
        return Pointwise(results=(value,), axes=axes, bodies=(body,), origin=origin)

    def sum(self, result: Value, source: str, weight: str, origin: Origin) -> Reduction:
        """Return the sum that computes the convolution without its bias."""
        batch, output, *points = (Axis(f"i{k}", size) for k, size in enumerate(result.type.shape))
        taps = tuple(Axis(f"r{k}", size) for k, size in enumerate(self.weight[2:]))
        at, tests = [], []
        for k in range(2):
            term = add(
                mul(symbol(points[k].name), self.stride[k]),
                mul(symbol(taps[k].name), self.dilation[k]),
                -self.padding[k],
            )
            at.append(term)
            tests += _tests(term, self._reach(k, points[k]), self.padding[k], self.source[2 + k])
        own, tap_points = symbol(output.name), tuple(symbol(axis.name) for axis in taps)
        reduced: tuple[Axis, ...]
        weight_index: tuple[Size, ...]
        if self.depthwise:
            channel: Size = own
            reduced, weight_index = taps, (*tap_points, own)
        else:
            summed = Axis("c", self.weight[1])
            channel = symbol(summed.name)
            reduced = (summed, *taps) if self.gathered else (*taps, summed)
            inner = tuple(symbol(axis.name) for axis in reduced)
            weight_index = (floordiv(own, self.columns), *inner, mod(own, self.columns))
        read: Expr = Load(source, (symbol(batch.name), channel, *at), f32)
        if tests:
            read = masked(logical_and(*tests), read, const(0.0, f32))
        return Reduction(
            results=(result,),
            axes=(batch, output, *points),
            reduce_axes=reduced,
            combiner=NamedCombiner("sum"),
            bodies=(op("mul", read, Load(weight, weight_index, f32)),),
            origin=origin,
        )

    def _reach(self, k: int, points: Axis) -> int:
        """Return the greatest input point along a dimension."""
        assert isinstance(points.size, int)
        return (
            (points.size - 1) * self.stride[k] + (self.weight[2 + k] - 1) * self.dilation[k] - self.padding[k]
        )


def biased(result: Value, total: str, bias: str, origin: Origin) -> Pointwise:
    """Return the loop that adds the bias of each channel to a sum."""
    axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(result.type.shape))
    at = tuple(symbol(axis.name) for axis in axes)
    body = op("add", Load(total, at, f32), Load(bias, (at[1],), f32))
    return Pointwise(results=(result,), axes=axes, bodies=(body,), origin=origin)


def _scaled(value: Expr, scale: str | None, output: Size) -> Expr:
    return value if scale is None else op("mul", value, Load(scale, (output,), f32))


def _tests(term: Size, reach: int, padding: int, size: int) -> list[Expr]:
    """Return the tests that a position is inside of the input, where it need not be."""
    found = []
    if padding > 0:
        found.append(op("ge", index(term), index(0)))
    if reach >= size:
        found.append(op("lt", index(term), index(size)))
    return found
