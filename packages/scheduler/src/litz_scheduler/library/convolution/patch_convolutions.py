"""Convolutions on a GPU whose filters do not overlap, as matmuls of the library over patches of their input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from litz_ir.contraction import Convolution, ConvolutionCall
from litz_ir.dtypes import bf16, f16
from litz_ir.loops import (
    Axis,
    ContractionCall,
    Layout,
    Operation,
    Pointwise,
    Ref,
    TensorType,
    Value,
    View,
    contiguous,
)
from litz_ir.origin import Origin
from litz_ir.scalar import Expr, Load, op
from litz_ir.symbols import Size, add, floordiv, mod, mul, symbol
from litz_ir.target import DeviceModel, RoutineModel
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import static_bytes, static_size
from litz_scheduler.analysis.graph_facts import element_axes
from litz_scheduler.library.convolution.convolution_bias import channel_sums
from litz_scheduler.library.prices import (
    bias_seconds,
    matmul_seconds,
    padded_convolution_seconds,
)
from litz_scheduler.library.strategy import Candidate, Choice, Prices, Rewriting

_DTYPES = (bf16, f16)
"""The dtypes whose channels tensor cores read several at a time. Others are left to the library."""


@dataclass(frozen=True, slots=True)
class PatchMatmul:
    """A convolution over patches on a GPU, and its weight's gradient, as a matmul over a matrix of patches.

    A filter as long as its stride reads each element of the input at most once, so that the patches have each at
    most once: a loop gathers them, which fuses with a cast of the input. The library's convolutions are slow where the
    channels are no multiple of a vector, as three are; a row of the matrix holds all elements of a patch.
    """

    name: str = "patches"
    """The name of the strategy."""

    def candidate(self, call: ContractionCall, rewriting: Rewriting) -> Candidate | None:
        known = rewriting.convolution(call)
        machine = None if known is None else rewriting.gpu_of(known)
        if known is None or machine is None or machine.routines is None or not machine.model.matrix_rate:
            return None
        if known.bias is not None and known.bias.type.dtype != known.convolutions[0].result.type.dtype:
            return None
        vector = machine.model.vector_bytes
        if not all(_is_of_patches(each, vector) for each in known.convolutions):
            return None
        choices = (Choice(call.name, "call", reasons.LIBRARY_PATCHES),)
        prices = _prices(known, machine.routines, machine.model)
        return Candidate(choices, lambda: _matmuls(known, call.origin), prices)


def _prices(call: ConvolutionCall, routines: RoutineModel, model: DeviceModel) -> Prices:
    """Return the seconds of the matmuls and the copies of patches, and of the library over padded channels."""
    own = other = 0.0
    for each in call.convolutions:
        channels, *patch = (_size(size) for size in each.weight.type.shape)
        rows = static_size(each.output.type) // channels
        own += matmul_seconds(rows, channels, prod(patch), routines.matmul_share, model)
        own += 2 * static_bytes(each.input.type) / model.memory_rate
        other += padded_convolution_seconds(each, routines, model)
    biased = call.bias is not None or call.bias_gradient is not None
    return Prices(own, other + (bias_seconds(call.convolutions[0].output.type, model) if biased else 0.0))


def _is_of_patches(convolution: Convolution, vector: int) -> bool:
    """Return whether the matmul over patches computes a convolution, with aligned rows where its channels are not.

    The gradient of the input would have to be scattered back, and is left to the library.
    """
    types = (convolution.input.type, convolution.output.type, convolution.weight.type)
    dtype = types[0].dtype
    if not vector or convolution.computed == "input" or convolution.groups != 1:
        return False
    if dtype not in _DTYPES or any(type_.dtype != dtype for type_ in types):
        return False
    sizes = convolution.kernel_size
    adjacent = all(n == 1 or distance == 1 for n, distance in zip(sizes, convolution.dilation))
    if sizes != convolution.stride or any(convolution.padding) or not adjacent:
        return False
    rows, columns, *_ = types[-1].shape
    depth = _size(columns) * prod(sizes)
    aligned = all(size * dtype.itemsize % vector == 0 for size in (_size(rows), depth))
    unaligned = _size(columns) * dtype.itemsize % vector != 0
    return aligned and unaligned and _patch_order(convolution.weight.type) is not None


def _patch_order(weight: TensorType) -> tuple[int, ...] | None:
    """Return the dimensions of a patch, the slowest first, in whose order the rows of a weight are contiguous.

    ``None`` where no order of them makes the weight a matrix of contiguous rows.
    """
    strides, shape = weight.layout.strides, weight.shape
    given = [_number(stride) for stride in strides]
    order = sorted(range(1, len(shape)), key=lambda k: (-given[k] if shape[k] != 1 else 0, k))
    return tuple(order) if _is_row_major(weight, (0, *order)) else None


def _is_row_major(type_: TensorType, order: Sequence[int]) -> bool:
    """Return whether the dimensions of a tensor are contiguous in an order, the slowest first."""
    step = 1
    for k in reversed(order):
        size = _size(type_.shape[k])
        if size != 1 and type_.layout.strides[k] != step:
            return False
        step *= size
    return True


def _matmuls(call: ConvolutionCall, origin: Origin) -> tuple[Operation, ...]:
    """Return the operations that replace a call."""
    operations: list[Operation] = []
    for each in call.convolutions:
        made = _Patches(each, origin)
        operations += made.output(call.bias) if each.computed == "output" else made.weight_gradient()
    if call.bias_gradient is not None:
        operations += channel_sums(*call.bias_gradient, origin)
    return tuple(operations)


class _Patches:
    """The matmul over the patches of a convolution: rows are patches, columns the elements of one."""

    def __init__(self, convolution: Convolution, origin: Origin) -> None:
        self._convolution = convolution
        self._origin = origin
        order = _patch_order(convolution.weight.type)
        assert order is not None, "the convolution suits"
        self._order = order
        self._name = convolution.result.name
        batch, self._channels, *points = (_size(size) for size in convolution.output.type.shape)
        self._row_sizes = (batch, *points)
        self._rows = prod(self._row_sizes)
        shape = convolution.weight.type.shape
        self._column_sizes = tuple(_size(shape[k]) for k in order)
        self._columns = prod(self._column_sizes)

    def output(self, bias: Value | None) -> tuple[Operation, ...]:
        """Return the operations of the output: the matmul, the bias of its columns, and eager's layout.

        ATen rounds a convolution before it adds the bias, so the values are eager's.
        """
        gathered, patches = self._gathered()
        weight, result = self._convolution.weight, self._convolution.result
        shape, type_ = (self._columns, self._channels), result.type
        parts = _divided("i0", self._column_sizes)
        index = (symbol("i1"), *(parts[self._order.index(k)] for k in range(1, len(weight.type.shape))))
        transposed = self._view("weight", weight, shape, (1, self._columns), index)
        matmul = self._multiplied("matmul", patches, transposed.name, (self._rows, self._channels))
        axes = element_axes(type_)
        batch, channel, *points = (symbol(axis.name) for axis in axes)
        row = _combined((batch, *points), self._row_sizes)
        body: Expr = Load(matmul.name, (row, channel), type_.dtype)
        if bias is not None:
            body = op("add", body, Load(bias.name, (channel,), type_.dtype))
        written = Pointwise(results=(result,), axes=axes, bodies=(body,), origin=self._origin)
        return *gathered, transposed, matmul, written

    def weight_gradient(self) -> tuple[Operation, ...]:
        """Return the operations of the weight's gradient: the gradients of each channel times the patches."""
        gathered, patches = self._gathered()
        gradient, result = self._convolution.output, self._convolution.result
        shape, strides = (self._channels, self._rows), (1, self._channels)
        parts = _divided("i1", self._row_sizes)
        operations: list[Operation] = [*gathered]
        if _is_row_major(gradient.type, (0, *range(2, len(gradient.type.shape)), 1)):
            transposed = self._view(
                "gradient", gradient, shape, strides, (parts[0], symbol("i0"), *parts[1:])
            )
        else:
            sizes = (*self._row_sizes, self._channels)
            axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(sizes))
            batch, *points, channel = (symbol(axis.name) for axis in axes)
            body = Load(gradient.name, (batch, channel, *points), gradient.type.dtype)
            rows = Value(f"{self._name}.rows", self._type(sizes))
            operations.append(Pointwise(results=(rows,), axes=axes, bodies=(body,), origin=self._origin))
            transposed = self._view("gradient", rows, shape, strides, (*parts, symbol("i0")))
        matmul = self._multiplied("matmul", transposed.name, patches, (self._channels, self._columns))
        axes = element_axes(result.type)
        own = [symbol(axes[k].name) for k in self._order]
        index = (symbol(axes[0].name), _combined(own, self._column_sizes))
        view = View(results=(result,), base=matmul.name, axes=axes, index=index, origin=self._origin)
        return *operations, transposed, matmul, view

    def _gathered(self) -> tuple[tuple[Operation, ...], str]:
        """Return the loop that gathers the patches and its view as a matrix, and the name of this one.

        What remains at the end of a dimension that is no multiple of the patch is not read.
        """
        source, sizes = self._convolution.input, (*self._row_sizes, *self._column_sizes)
        axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(sizes))
        terms = [symbol(axis.name) for axis in axes]
        (batch, *points), inner = terms[: len(self._row_sizes)], terms[len(self._row_sizes) :]
        channel, *offsets = (inner[self._order.index(k)] for k in range(1, len(self._order) + 1))
        at = [
            add(mul(point, step), offset)
            for point, step, offset in zip(points, self._convolution.stride, offsets, strict=True)
        ]
        body = Load(source.name, (batch, channel, *at), source.type.dtype)
        gathered = Value(f"{self._name}.gathered", self._type(sizes))
        loop = Pointwise(results=(gathered,), axes=axes, bodies=(body,), origin=self._origin)
        index = (*_divided("i0", self._row_sizes), *_divided("i1", self._column_sizes))
        shape = (self._rows, self._columns)
        view = self._view("patches", gathered, shape, (self._columns, 1), index)
        return (loop, view), view.name

    def _view(
        self,
        name: str,
        base: Value,
        shape: tuple[int, int],
        strides: tuple[int, int],
        index: tuple[Size, ...],
    ) -> View:
        """Return the view of a tensor as a matrix with these strides."""
        type_ = TensorType(base.type.dtype, shape, Layout(strides), base.type.device)
        return View(
            results=(Value(f"{self._name}.{name}", type_),),
            base=base.name,
            axes=element_axes(type_),
            index=index,
            origin=self._origin,
        )

    def _multiplied(self, name: str, a: str, b: str, shape: tuple[int, int]) -> ContractionCall:
        """Return the call of the library's matmul."""
        return ContractionCall(
            results=(Value(f"{self._name}.{name}", self._type(shape)),),
            target="aten.mm.default",
            arguments=(Ref(a), Ref(b)),
            kind="matmul",
            layout_requirement="any",
            flops=2 * self._rows * self._channels * self._columns,
            origin=self._origin,
        )

    def _type(self, shape: tuple[int, ...]) -> TensorType:
        """Return the type of a row-major tensor of the convolution's dtype, on its device."""
        type_ = self._convolution.result.type
        return TensorType(type_.dtype, shape, contiguous(shape, fixed=True), type_.device)


def _divided(name: str, sizes: Sequence[int]) -> tuple[Size, ...]:
    """Return the index along each of some dimensions, at the position ``name`` in all of them."""
    found: list[Size] = []
    step = prod(sizes)
    for number, size in enumerate(sizes):
        step //= size
        term = floordiv(symbol(name), step) if step > 1 else symbol(name)
        found.append(0 if size == 1 else mod(term, size) if number else term)
    return tuple(found)


def _combined(terms: Sequence[Size], sizes: Sequence[int]) -> Size:
    """Return the position in all of some dimensions, at an index along each."""
    position: Size = 0
    for term, size in zip(terms, sizes, strict=True):
        position = add(mul(position, size), term)
    return position


def _size(size: Size) -> int:
    assert isinstance(size, int), "calls of unknown sizes are no convolutions here"
    return size


def _number(stride: Size) -> int:
    return stride if isinstance(stride, int) else 0
