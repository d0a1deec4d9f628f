"""Convolutions and their gradients as sums over loop axes.

Each is an implicit GEMM: at least one operand is gathered from a tensor by computed indices. The axes are batch, M, N
and K; the sum runs over K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from litz_ir.contraction import Convolution
from litz_ir.dtypes import DType, f32, i64
from litz_ir.loops import (
    Axis,
    Layout,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    TensorType,
    Value,
    stride_order,
)
from litz_ir.origin import Origin
from litz_ir.scalar import Expr, Load, cast, const, index, logical_and, masked, op, substitute_expr
from litz_ir.symbols import Size, SymbolTable, add, floordiv, mod, mul, simplify, symbol
from litz_scheduler.analysis.graph_facts import axis_ranges, element_axes
from litz_scheduler.library.layout.convolution_layouts import RANKS, is_channels_last


@dataclass(frozen=True, slots=True)
class ConvolutionSum:
    """The sum that computes the output of a convolution or one of its gradients."""

    dimension_axes: tuple[tuple[Axis, ...], ...]
    """The axes that each dimension of the result consists of, the slowest first."""
    summed: tuple[Axis, ...]
    """The axes of the sum (K)."""
    body: Expr
    """The f32 term at a point of all axes."""
    index: tuple[Size, ...]
    """The point of the axes that holds the element (``i0``, ``i1``, ...) of the result."""
    in_bounds: Expr
    """True at elements (``i0``, ``i1``, ...) of the result that have such a point; the sum of others is empty."""
    exact: bool
    """True where every point of the axes holds an element of the result."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of all dimensions."""
        return tuple(axis for axes in self.dimension_axes for axis in axes)

    @property
    def channel(self) -> Size:
        """The index along the result's second dimension at a point of the axes."""
        number: Size = 0
        for axis in self.dimension_axes[1]:
            number = add(mul(number, axis.size), symbol(axis.name))
        return number

    def type_of(self, result: TensorType, dtype: DType) -> TensorType:
        """Return the type of a tensor with one element for each point of the axes.

        Its layout follows the stride order of ``result`` and may change.
        """
        strides: dict[str, Size] = {}
        stride = 1
        for dimension in reversed(stride_order(result.layout)):
            for axis in reversed(self.dimension_axes[dimension]):
                strides[axis.name] = stride
                stride *= _size(axis)
        shape = tuple(axis.size for axis in self.axes)
        layout = Layout(tuple(strides[axis.name] for axis in self.axes))
        return TensorType(dtype, shape, layout, result.device)


def convolution_sum(convolution: Convolution, multiply: str) -> ConvolutionSum:
    """Return the sum for the computed tensor of a convolution.

    ``multiply`` names the scalar operation that multiplies two f32 elements, such as ``mul`` or ``mul_tf32``.
    """
    makers = {"output": _output_sum, "input": _input_sum, "weight": _weight_sum}
    return makers[convolution.computed](convolution, multiply)


def _output_sum(convolution: Convolution, multiply: str) -> ConvolutionSum:
    """Return the sum of the output over input channels and filter points."""
    source, weight = convolution.input, convolution.weight
    groups = _Groups.of(convolution)
    batch, points, taps = _batch(convolution), _spatial_axes(convolution.output), _filter_axes(convolution)
    channel = Axis("c", groups.input_channels)
    at, tests = input_points(convolution, points, taps)
    a = read(source, (symbol(batch.name), groups.number(channel), *at), tests)
    own = Axis("i1", groups.output_channels)
    b = read(weight, (groups.number(own), symbol(channel.name), *(symbol(axis.name) for axis in taps)))
    last = len(source.type.shape) in RANKS and is_channels_last(source.type)
    summed = (*taps, channel) if last else (channel, *taps)
    dimension_axes = ((batch,), groups.axes(own), *((axis,) for axis in points))
    spatial = tuple(symbol(f"i{k + 2}") for k in range(len(convolution.kernel_size)))
    return ConvolutionSum(
        dimension_axes,
        summed,
        op(multiply, a, b),
        (symbol("i0"), *groups.index(own), *spatial),
        _ALWAYS,
        True,
    )


def _input_sum(convolution: Convolution, multiply: str) -> ConvolutionSum:
    """Return the sum of the input's gradient over output channels and the filter points that reach an input point."""
    output, weight = convolution.output, convolution.weight
    groups = _Groups.of(convolution)
    batch, channel, own = (
        _batch(convolution),
        Axis("c", groups.output_channels),
        Axis("i1", groups.input_channels),
    )
    dimensions = [_input_dimension(convolution, k) for k in range(len(convolution.kernel_size))]
    output_tests = [test for each in dimensions for test in each.output_tests]
    output_points = (each.output_point for each in dimensions)
    a = read(output, (symbol(batch.name), groups.number(channel), *output_points), output_tests)
    filter_points = (each.filter_point for each in dimensions)
    filter_tests = [test for each in dimensions for test in each.filter_tests]
    b = read(weight, (groups.number(channel), symbol(own.name), *filter_points), filter_tests)
    last = len(output.type.shape) in RANKS and is_channels_last(output.type)
    taps = tuple(each.summed for each in dimensions)
    return ConvolutionSum(
        ((batch,), groups.axes(own), *(each.axes for each in dimensions)),
        (*taps, channel) if last else (channel, *taps),
        op(multiply, a, b),
        (symbol("i0"), *groups.index(own), *(at for each in dimensions for at in each.index)),
        logical_and(*(each.in_bounds for each in dimensions)),
        all(each.exact for each in dimensions),
    )


def _weight_sum(convolution: Convolution, multiply: str) -> ConvolutionSum:
    """Return the sum of the weight's gradient over the batch and the output points."""
    source, output = convolution.input, convolution.output
    groups = _Groups.of(convolution)
    row, column = Axis("i0", groups.output_channels), Axis("i1", groups.input_channels)
    taps = tuple(Axis(f"i{k + 2}", size) for k, size in enumerate(convolution.kernel_size))
    batch = Axis("n", output.type.shape[0])
    points = tuple(Axis(f"y{k}", size) for k, size in enumerate(output.type.shape[2:]))
    a = read(output, (symbol(batch.name), groups.number(row), *(symbol(axis.name) for axis in points)))
    at, tests = input_points(convolution, points, taps)
    b = read(source, (symbol(batch.name), groups.number(column), *at), tests)
    dimension_axes = (groups.axes(row), (column,), *((axis,) for axis in taps))
    own = tuple(symbol(axis.name) for axis in (column, *taps))
    return ConvolutionSum(
        dimension_axes, (batch, *points), op(multiply, a, b), (*groups.index(row), *own), _ALWAYS, True
    )


_ALWAYS = logical_and()


@dataclass(frozen=True, slots=True)
class _Groups:
    """The number of groups of a convolution, and the channels in each."""

    count: int
    output_channels: int
    """Output channels in a group."""
    input_channels: int
    """Input channels in a group."""

    @staticmethod
    def of(convolution: Convolution) -> _Groups:
        rows, columns, *_ = convolution.weight.type.shape
        assert isinstance(rows, int) and isinstance(columns, int)
        return _Groups(convolution.groups, rows // convolution.groups, columns)

    def axes(self, channel: Axis) -> tuple[Axis, ...]:
        """Return the axes over all channels, of which ``channel`` runs over those in a group."""
        return (Axis("g", self.count), channel) if self.count > 1 else (channel,)

    def number(self, channel: Axis) -> Size:
        """Return the number of a channel of group ``g`` among all channels."""
        own = symbol(channel.name)
        return add(mul(symbol("g"), channel.size), own) if self.count > 1 else own

    def index(self, channel: Axis) -> tuple[Size, ...]:
        """Return the point of :meth:`axes` that holds the result's channel, the symbol named as ``channel`` is."""
        number = symbol(channel.name)
        return (floordiv(number, channel.size), mod(number, channel.size)) if self.count > 1 else (number,)


@dataclass(frozen=True, slots=True)
class _InputDimension:
    """A spatial dimension of the input as axes, and the filter points that reach each of its points."""

    axes: tuple[Axis, ...]
    """The axes that the dimension consists of, the slowest first."""
    summed: Axis
    """The axis of the sum over filter points."""
    index: tuple[Size, ...]
    """The point of ``axes`` that holds an input point."""
    in_bounds: Expr
    """True at input points that have a point of ``axes``."""
    exact: bool
    """True where every point of ``axes`` holds an input point."""
    filter_point: Size
    """The filter point at a point of ``axes`` and ``summed``."""
    filter_tests: tuple[Expr, ...]
    """The conditions under which it lies in the filter."""
    output_point: Size
    """The output point at a point of ``axes`` and ``summed``."""
    output_tests: tuple[Expr, ...]
    """The conditions under which both points exist."""


def _input_dimension(convolution: Convolution, k: int) -> _InputDimension:
    """Return the axes of one spatial dimension of the input's gradient.

    Output point ``y`` and filter point ``r`` reach the input point ``y * stride + r * dilation - padding``. All input
    points of one residue modulo ``stride`` are reached by the same filter points: every ``period``-th one after a
    first. So each residue has a dense sum, and residues are an axis. Where every residue is reached and has equally
    many input points, the axis is the residue itself. Elsewhere it is the first filter point, with the residues that it
    reaches: input points that no filter point reaches are not computed.
    """
    size, stride, dilation = convolution.kernel_size[k], convolution.stride[k], convolution.dilation[k]
    padding = convolution.padding[k]
    length, count = convolution.input.type.shape[k + 2], convolution.output.type.shape[k + 2]
    assert isinstance(length, int) and isinstance(count, int)
    divisor = gcd(stride, dilation)
    period = stride // divisor
    residues, taps = min(size, period), _taps_of_residue(convolution, k)
    summed, residue = Axis(f"r{k}", taps), Axis(f"p{k}", residues)
    quotient = Axis(f"i{k + 2}", -(-length // stride))
    exact = residues == stride and length % stride == 0
    inverse = pow(dilation // divisor, -1, period)

    def first(point: Size) -> Size:
        """Return the first filter point that reaches an input point."""
        return mod(mul(floordiv(add(point, padding), divisor), inverse), period)

    own = symbol(residue.name) if stride > 1 else 0
    begin = first(own) if exact else own
    start = (
        floordiv(add(own, padding, mul(begin, -dilation)), stride)
        if exact
        else mul(floordiv(add(mul(own, dilation), -padding), stride), -1)
    )
    axes = (quotient, residue) if stride > 1 else (quotient,)
    ranges = axis_ranges((*axes, summed), SymbolTable())
    filter_point = simplify(add(begin, mul(symbol(summed.name), period)), ranges)
    offset = mul(symbol(summed.name), -(dilation // divisor))
    output_point = simplify(add(symbol(quotient.name), start, offset), ranges)
    filter_tests = () if size % period == 0 or taps == 1 else (op("lt", index(filter_point), index(size)),)
    point = symbol(quotient.name)
    begin_of_point = first(point)
    in_bounds = _ALWAYS
    if not exact and divisor > 1:
        in_bounds = op("eq", index(mod(add(point, padding), divisor)), const(0, i64))
    if residues < period:
        in_bounds = logical_and(in_bounds, op("lt", index(begin_of_point), index(residues)))
    starts = [-((r * dilation - padding) // stride) for r in range(residues)]
    least, greatest = min(starts) - (taps - 1) * (dilation // divisor), max(starts) + _size(quotient) - 1
    at_residue = mod(point, stride) if exact else begin_of_point
    return _InputDimension(
        axes=axes,
        summed=summed,
        index=(point,) if stride == 1 else (floordiv(point, stride), at_residue),
        in_bounds=in_bounds,
        exact=exact,
        filter_point=filter_point,
        filter_tests=filter_tests,
        output_point=output_point,
        output_tests=(*filter_tests, *_bounds_tests(output_point, count, least, greatest)),
    )


def _taps_of_residue(convolution: Convolution, k: int) -> int:
    """Return the most filter points along a dimension that reach one input point."""
    size, stride, dilation = convolution.kernel_size[k], convolution.stride[k], convolution.dilation[k]
    return -(-size // (stride // gcd(stride, dilation)))


def reaching_taps(convolution: Convolution) -> int:
    """Return the most filter points that reach one input point."""
    return prod(_taps_of_residue(convolution, k) for k in range(len(convolution.kernel_size)))


def input_points(
    convolution: Convolution, outputs: tuple[Axis, ...], taps: tuple[Axis | int, ...]
) -> tuple[tuple[Size, ...], list[Expr]]:
    """Return the input point that each output point reads for a filter point, and the tests that it exists.

    A dimension of the filter is an axis, or one point of it.
    """
    sizes = convolution.input.type.shape[2:]
    points: list[Size] = []
    tests: list[Expr] = []
    for k, (output, tap) in enumerate(zip(outputs, taps, strict=True)):
        stride, dilation, padding = convolution.stride[k], convolution.dilation[k], convolution.padding[k]
        first, last = (tap, tap) if isinstance(tap, int) else (0, _size(tap) - 1)
        moved: Size = tap if isinstance(tap, int) else symbol(tap.name)
        at = add(mul(symbol(output.name), stride), mul(moved, dilation), -padding)
        least, reach = first * dilation - padding, (_size(output) - 1) * stride + last * dilation
        points.append(at)
        tests.extend(_bounds_tests(at, sizes[k], least, reach - padding))
    return tuple(points), tests


def _bounds_tests(at: Size, size: Size, least: int, greatest: int) -> tuple[Expr, ...]:
    """Return the tests that an index known to lie in ``[least, greatest]`` lies in ``[0, size)``."""
    assert isinstance(size, int)
    low = () if least >= 0 else (op("ge", index(at), const(0, i64)),)
    return low if greatest < size else (*low, op("lt", index(at), index(size)))


def read(value: Value, at: tuple[Size, ...], tests: Sequence[Expr] = ()) -> Expr:
    """Return an element in f32; zero where a test does not hold."""
    dtype = value.type.dtype
    return cast(masked(logical_and(*tests), Load(value.name, at, dtype), const(0.0, dtype)), f32)


def _batch(convolution: Convolution) -> Axis:
    return Axis("i0", convolution.output.type.shape[0])


def _spatial_axes(value: Value) -> tuple[Axis, ...]:
    return tuple(Axis(f"i{k + 2}", size) for k, size in enumerate(value.type.shape[2:]))


def _filter_axes(convolution: Convolution) -> tuple[Axis, ...]:
    return tuple(Axis(f"r{k}", size) for k, size in enumerate(convolution.kernel_size))


def _size(axis: Axis) -> int:
    assert isinstance(axis.size, int)
    return axis.size


def sum_loops(
    sum_: ConvolutionSum, result: Value, bias: Value | None, origin: Origin
) -> tuple[Operation, ...]:
    """Return the f32 sum, and the loops that add the bias, round it once and write the result.

    The rounding runs over the axes of the sum where these differ from the elements of the result.
    """
    type_, points = result.type, tuple(symbol(axis.name) for axis in sum_.axes)
    axes = element_axes(type_)
    own = tuple(symbol(axis.name) for axis in axes)
    unchanged = bias is None and type_.dtype == f32
    total = Value(f"{result.name}.sum", sum_.type_of(type_, f32))
    if unchanged and sum_.exact and sum_.index == own:
        total = result
    operations = [_summed(sum_, total, origin)]
    if total is result:
        return tuple(operations)
    if sum_.exact or unchanged:
        body = _rounded(Load(total.name, sum_.index, f32), bias, own[1], type_)
        empty: Expr = const(0.0, type_.dtype)
    else:
        value = Value(f"{result.name}.rounded", sum_.type_of(type_, type_.dtype))
        body = _rounded(Load(total.name, points, f32), bias, sum_.channel, type_)
        operations.append(Pointwise(results=(value,), axes=sum_.axes, bodies=(body,), origin=origin))
        body = Load(value.name, sum_.index, type_.dtype)
        empty = _rounded(const(0.0, f32), bias, own[1], type_)
    operations.append(
        Pointwise(results=(result,), axes=axes, bodies=(masked(sum_.in_bounds, body, empty),), origin=origin)
    )
    return tuple(operations)


def _summed(sum_: ConvolutionSum, total: Value, origin: Origin) -> Operation:
    """Return the loop of a sum; where it has one term, a loop that is fused with more than a reduction is."""
    if any(axis.size != 1 for axis in sum_.summed):
        return Reduction(
            results=(total,), axes=sum_.axes, reduce_axes=sum_.summed, combiner=NamedCombiner("sum"),
            bodies=(sum_.body,), origin=origin,
        )  # fmt: skip
    term = substitute_expr(sum_.body, {axis.name: 0 for axis in sum_.summed})
    # A sum is never a negative zero.
    body = op("add", term, const(0.0, f32))
    return Pointwise(results=(total,), axes=sum_.axes, bodies=(body,), origin=origin)


def _rounded(total: Expr, bias: Value | None, channel: Size, type_: TensorType) -> Expr:
    """Return a sum plus the bias of its channel, rounded to the dtype of ``type_``."""
    if bias is not None:
        total = op("add", total, cast(Load(bias.name, (channel,), bias.type.dtype), f32))
    return cast(total, type_.dtype)
