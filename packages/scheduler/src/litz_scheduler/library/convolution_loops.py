"""Convolutions and their gradients as sums of products: over which axes, and where their results lie on them.

Each is a product of matrices, of which at least one is gathered: a batch, a side for each factor, and what is summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from litz_ir.contraction import Convolution
from litz_ir.dtypes import DType, f32, i64
from litz_ir.loops import Axis, Layout, TensorType, Value, stride_order
from litz_ir.scalar import Expr, Load, cast, const, index, logical_and, masked, op
from litz_ir.symbols import Size, SymbolTable, add, floordiv, mod, mul, simplify, symbol
from litz_scheduler.graph_facts import axis_ranges
from litz_scheduler.library.convolution_layouts import RANKS, is_channels_last


@dataclass(frozen=True, slots=True)
class ConvolutionSum:
    """The sum of ``body`` over ``summed``, for every point of ``dimension_axes``: the axes that each dimension of the
    result is
    made of, slower ones first.

    The result's point (``i0``, ``i1``, ...) lies ``index`` these axes where ``in_bounds`` holds; elsewhere nothing is
    summed. ``exact``: every point of theirs is one of the result's.
    """

    dimension_axes: tuple[tuple[Axis, ...], ...]
    summed: tuple[Axis, ...]
    body: Expr
    index: tuple[Size, ...]
    in_bounds: Expr
    exact: bool

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Those of all dimensions."""
        return tuple(axis for line in self.dimension_axes for axis in line)

    @property
    def channel(self) -> Size:
        """The number that the second dimension of the result has at a point of the axes."""
        number: Size = 0
        for axis in self.dimension_axes[1]:
            number = add(mul(number, axis.size), symbol(axis.name))
        return number

    def type_of(self, result: TensorType, dtype: DType) -> TensorType:
        """The type of what has an element for each point of the axes; free, and laid out as the result is."""
        strides: dict[str, Size] = {}
        step = 1
        for dimension in reversed(stride_order(result.layout)):
            for axis in reversed(self.dimension_axes[dimension]):
                strides[axis.name] = step
                step *= _size(axis)
        shape = tuple(axis.size for axis in self.axes)
        layout = Layout(tuple(strides[axis.name] for axis in self.axes))
        return TensorType(dtype, shape, layout, result.device)


def convolution_sum(convolution: Convolution, multiply: str) -> ConvolutionSum:
    """The sum that gives what is wanted of a convolution, whose elements the operation ``multiply`` makes products of,
    in f32."""
    makers = {"output": _over_image, "input": _over_places, "weight": _over_points}
    return makers[convolution.computed](convolution, multiply)


def _over_image(convolution: Convolution, multiply: str) -> ConvolutionSum:
    """Points are places of the window, with their channels; summed are channels of the image and the window."""
    image, weight = convolution.input, convolution.weight
    groups = _Groups.of(convolution)
    batch, points, inside = _batch(convolution), _points(convolution.output), _inside(convolution)
    channel = Axis("c", groups.of_image)
    at, tests = _under(convolution, points, inside)
    left = _read(image, (symbol(batch.name), groups.place(channel), *at), tests)
    own = Axis("i1", groups.of_places)
    right = _read(weight, (groups.place(own), symbol(channel.name), *(symbol(axis.name) for axis in inside)))
    last = len(image.type.shape) in RANKS and is_channels_last(image.type)
    summed = (*inside, channel) if last else (channel, *inside)
    lines = ((batch,), groups.line(own), *((axis,) for axis in points))
    spots = tuple(symbol(f"i{k + 2}") for k in range(len(convolution.kernel_size)))
    return ConvolutionSum(
        lines, summed, op(multiply, left, right), (symbol("i0"), *groups.at(own), *spots), _ALWAYS, True
    )


def _over_places(convolution: Convolution, multiply: str) -> ConvolutionSum:
    """Points are those of the image, with their channels; summed are channels of the places, and the points of the
    window that meet a point of the image."""
    places, weight = convolution.output, convolution.weight
    groups = _Groups.of(convolution)
    batch, channel, own = _batch(convolution), Axis("c", groups.of_places), Axis("i1", groups.of_image)
    met = [_met(convolution, k) for k in range(len(convolution.kernel_size))]
    tests = [test for each in met for test in each.tests]
    left = _read(places, (symbol(batch.name), groups.place(channel), *(each.place for each in met)), tests)
    inside = (each.window for each in met)
    known = [test for each in met for test in each.known]
    right = _read(weight, (groups.place(channel), symbol(own.name), *inside), known)
    last = len(places.type.shape) in RANKS and is_channels_last(places.type)
    points = tuple(each.summed for each in met)
    return ConvolutionSum(
        ((batch,), groups.line(own), *(each.line for each in met)),
        (*points, channel) if last else (channel, *points),
        op(multiply, left, right),
        (symbol("i0"), *groups.at(own), *(spot for each in met for spot in each.at)),
        logical_and(*(each.within for each in met)),
        all(each.exact for each in met),
    )


def _over_points(convolution: Convolution, multiply: str) -> ConvolutionSum:
    """Points are those of the weight; summed are the places of the window, in all images."""
    image, places = convolution.input, convolution.output
    groups = _Groups.of(convolution)
    row, column = Axis("i0", groups.of_places), Axis("i1", groups.of_image)
    inside = tuple(Axis(f"i{k + 2}", size) for k, size in enumerate(convolution.kernel_size))
    batch = Axis("n", places.type.shape[0])
    points = tuple(Axis(f"y{k}", size) for k, size in enumerate(places.type.shape[2:]))
    left = _read(places, (symbol(batch.name), groups.place(row), *(symbol(axis.name) for axis in points)))
    at, tests = _under(convolution, points, inside)
    right = _read(image, (symbol(batch.name), groups.place(column), *at), tests)
    lines = (groups.line(row), (column,), *((axis,) for axis in inside))
    spots = tuple(symbol(axis.name) for axis in (column, *inside))
    return ConvolutionSum(
        lines, (batch, *points), op(multiply, left, right), (*groups.at(row), *spots), _ALWAYS, True
    )


_ALWAYS = logical_and()


@dataclass(frozen=True, slots=True)
class _Groups:
    """How many groups there are, and how many channels of the places and of the image each has."""

    count: int
    of_places: int
    of_image: int

    @staticmethod
    def of(convolution: Convolution) -> _Groups:
        rows, columns, *_ = convolution.weight.type.shape
        assert isinstance(rows, int) and isinstance(columns, int)
        return _Groups(convolution.groups, rows // convolution.groups, columns)

    def line(self, channel: Axis) -> tuple[Axis, ...]:
        """The axes of all channels, of which ``channel`` runs over those of a group."""
        return (Axis("g", self.count), channel) if self.count > 1 else (channel,)

    def place(self, channel: Axis) -> Size:
        """The number of a channel of a group among all."""
        own = symbol(channel.name)
        return add(mul(symbol("g"), channel.size), own) if self.count > 1 else own

    def at(self, channel: Axis) -> tuple[Size, ...]:
        """Where a channel of the result lies on the axes of its line, whose last one it is named after."""
        whole = symbol(channel.name)
        return (floordiv(whole, channel.size), mod(whole, channel.size)) if self.count > 1 else (whole,)


@dataclass(frozen=True, slots=True)
class _Met:
    """A dimension of an image, and the points of a window that meet its points: ``summed`` of them at the most.

    The dimension is made of the axes ``line``; its points lie ``at`` them where ``within`` holds, and all of these
    points are the image's where that is ``exact``. Of a point of the axes and of ``summed``, ``window`` is the window's
    point, where ``known`` holds, and ``place`` is the place of the window, where ``tests`` hold.
    """

    line: tuple[Axis, ...]
    summed: Axis
    at: tuple[Size, ...]
    within: Expr
    exact: bool
    window: Size
    known: tuple[Expr, ...]
    place: Size
    tests: tuple[Expr, ...]


def _met(convolution: Convolution, k: int) -> _Met:
    """What meets the points of a dimension of the image.

    Place ``y`` and the window's point ``r`` meet the point ``y * step + r * distance - padding``. So points that lie
    ``step`` apart, a residue of it, are met by the same points of the window, of which every ``period``-th belongs to
    one residue: each has a dense sum of its own. The residues are an axis, that of the residue itself where each is
    met and the image has equally many points of each. Elsewhere it is that of the window's first points, with the
    residues that they belong to: what no point of the window meets is not computed.
    """
    size, step, distance = convolution.kernel_size[k], convolution.stride[k], convolution.dilation[k]
    padding = convolution.padding[k]
    length, count = convolution.input.type.shape[k + 2], convolution.output.type.shape[k + 2]
    assert isinstance(length, int) and isinstance(count, int)
    shared = gcd(step, distance)
    period = step // shared
    residues, times = min(size, period), -(-size // period)
    summed, along, residue = (
        Axis(f"r{k}", times),
        Axis(f"i{k + 2}", -(-length // step)),
        Axis(f"p{k}", residues),
    )
    exact = residues == step and length % step == 0
    inverse = pow(distance // shared, -1, period)

    def first(point: Size) -> Size:
        """The first of the window's points that meet a point of the image."""
        return mod(mul(floordiv(add(point, padding), shared), inverse), period)

    own = symbol(residue.name) if step > 1 else 0
    begin = first(own) if exact else own
    ahead = (
        floordiv(add(own, padding, mul(begin, -distance)), step)
        if exact
        else mul(floordiv(add(mul(own, distance), -padding), step), -1)
    )
    line = (along, residue) if step > 1 else (along,)
    ranges = axis_ranges((*line, summed), SymbolTable())
    inside = simplify(add(begin, mul(symbol(summed.name), period)), ranges)
    back = mul(symbol(summed.name), -(distance // shared))
    place = simplify(add(symbol(along.name), ahead, back), ranges)
    known = () if size % period == 0 or times == 1 else (op("lt", index(inside), index(size)),)
    whole = symbol(along.name)
    met = first(whole)
    within = _ALWAYS
    if not exact and shared > 1:
        within = op("eq", index(mod(add(whole, padding), shared)), const(0, i64))
    if residues < period:
        within = logical_and(within, op("lt", index(met), index(residues)))
    starts = [-((r * distance - padding) // step) for r in range(residues)]
    least, most = min(starts) - (times - 1) * (distance // shared), max(starts) + _size(along) - 1
    return _Met(
        line=line,
        summed=summed,
        at=(whole,) if step == 1 else (floordiv(whole, step), mod(whole, step) if exact else met),
        within=within,
        exact=exact,
        window=inside,
        known=known,
        place=place,
        tests=(*known, *_between(place, count, least, most)),
    )


def _under(
    convolution: Convolution, places: tuple[Axis, ...], inside: tuple[Axis, ...]
) -> tuple[tuple[Size, ...], list[Expr]]:
    """The points of the image that lie under the points ``inside`` of the window at ``places``, and whether they do."""
    sizes = convolution.input.type.shape[2:]
    found: list[Size] = []
    tests: list[Expr] = []
    for k, (place, point) in enumerate(zip(places, inside, strict=True)):
        step, distance, padding = convolution.stride[k], convolution.dilation[k], convolution.padding[k]
        at = add(mul(symbol(place.name), step), mul(symbol(point.name), distance), -padding)
        reach = (_size(place) - 1) * step + (_size(point) - 1) * distance
        found.append(at)
        tests.extend(_between(at, sizes[k], -padding, reach - padding))
    return tuple(found), tests


def _between(at: Size, size: Size, least: int, most: int) -> tuple[Expr, ...]:
    """The tests that a place which lies from ``least`` to ``most`` is one of so many."""
    assert isinstance(size, int)
    low = () if least >= 0 else (op("ge", index(at), const(0, i64)),)
    return low if most < size else (*low, op("lt", index(at), index(size)))


def _read(value: Value, at: tuple[Size, ...], tests: Sequence[Expr] = ()) -> Expr:
    """An element in f32, zero where one of the tests does not hold."""
    dtype = value.type.dtype
    return cast(masked(logical_and(*tests), Load(value.name, at, dtype), const(0.0, dtype)), f32)


def _batch(convolution: Convolution) -> Axis:
    return Axis("i0", convolution.output.type.shape[0])


def _points(value: Value) -> tuple[Axis, ...]:
    return tuple(Axis(f"i{k + 2}", size) for k, size in enumerate(value.type.shape[2:]))


def _inside(convolution: Convolution) -> tuple[Axis, ...]:
    return tuple(Axis(f"r{k}", size) for k, size in enumerate(convolution.kernel_size))


def _size(axis: Axis) -> int:
    assert isinstance(axis.size, int)
    return axis.size
