"""Depthwise convolutions on a GPU and their gradients: as loops, or as other convolutions of the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from litz_ir.contraction import CONVOLUTION, Convolution, ConvolutionCall
from litz_ir.dtypes import bf16, f16, f32, i64
from litz_ir.loops import (
    Axis,
    ContractionCall,
    Layout,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    Ref,
    TensorType,
    Value,
    contiguous,
)
from litz_ir.scalar import Expr, Load, cast, const, index, loads, logical_and, op, where
from litz_ir.symbols import Size, add, floordiv, mul, symbol
from litz_ir.target import RoutineModel
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import element_axes, is_identity
from litz_scheduler.library.convolution.convolution_loops import (
    convolution_sum,
    input_points,
    reaching_taps,
    read,
    sum_loops,
)
from litz_scheduler.library.convolution.remaining_call import remaining_call
from litz_scheduler.library.layout.channels_last_values import channels_last
from litz_scheduler.library.layout.convolution_layouts import is_channels_last
from litz_scheduler.library.strategy import Candidate, Choice, Rewriting

Form = Literal["call", "loops", "flipped", "sums"]
"""Form of a depthwise convolution or of a gradient of one: by the library's own call, by a loop over the filter,
by the library's convolution with the flipped filter, or by a sum for each point of the filter."""

_DTYPES = (bf16, f16)

_RANK = 4
"""Rank of 2-d activations. Others have not been timed, or have no channels-last."""


@dataclass(frozen=True, slots=True)
class DepthwiseForms:
    """2-d depthwise convolutions in low precision and channels-last on a GPU in the form that is quickest.

    On an H200 the library's gradient of the input takes up to 2.3 times its convolution, up to 3.4 times with a stride,
    though both move the same bytes. Without a stride, the gradient is the convolution of the output's
    gradient with the flipped filter; with one, it is a loop over the filter points that reach an element. Convolutions
    with a stride are such loops too, and small ones whose reader is fused with them. The gradient of the weight is a
    call, except for wide filters that move by a stride over few points, for which the library has a slow kernel.
    Transposed convolutions and their gradients are the same three computations.
    """

    name: str = "depthwise-forms"
    """The name of the strategy."""

    def candidate(self, call: ContractionCall, rewriting: Rewriting) -> Candidate | None:
        known = rewriting.convolution(call)
        machine = None if known is None else rewriting.gpu_of(known)
        if known is None or machine is None or machine.routines is None or not _suits(known):
            return None
        result = known.convolutions[0].result
        readers = rewriting.readers.get(result.name, ())
        fused = result.name not in rewriting.returned and _is_read_pointwise(result, readers)
        forms = [_form(each, fused, machine.routines) for each in known.convolutions]
        if set(forms) == {"call"}:
            return None
        choices = tuple(
            Choice(each.result.name, "call", reasons.LIBRARY_FLIPPED)
            if form == "flipped"
            else Choice(each.result.name, "generate", reasons.LIBRARY_DEPTHWISE)
            for each, form in zip(known.convolutions, forms)
            if form != "call"
        )
        return Candidate(choices, lambda: _rewritten(call, known, forms))


def _suits(call: ConvolutionCall) -> bool:
    """Return whether all that a call computes are depthwise convolutions whose other forms have been timed."""
    plain = call.bias is None and call.bias_gradient is None
    return plain and all(map(_is_depthwise, call.convolutions))


def _is_depthwise(convolution: Convolution) -> bool:
    types = (convolution.input.type, convolution.output.type, convolution.weight.type)
    rows, columns, *_ = types[-1].shape
    if {type_.dtype for type_ in types} not in ({dtype} for dtype in _DTYPES):
        return False
    if len({type_.device.kind for type_ in types}) != 1 or len(types[0].shape) != _RANK:
        return False
    one_each = rows == convolution.groups and columns == 1 and convolution.groups > 1
    return one_each and all(is_channels_last(type_) for type_ in types[:2])


def _is_read_pointwise(value: Value, readers: Sequence[Operation]) -> bool:
    """Return whether the only reader of a value is a loop that can be computed where the value is."""
    loop = readers[0] if len(readers) == 1 else None
    if not isinstance(loop, Pointwise):
        return False
    sizes = tuple(axis.size for axis in loop.axes)
    read_ = [load for body in loop.bodies for load in loads(body) if load.buffer == value.name]
    return sizes == value.type.shape and all(is_identity(load.index, loop.axes) for load in read_)


def _form(convolution: Convolution, fused: bool, routines: RoutineModel) -> Form:
    """Return the form that took the least time; ``fused`` says that a loop saves a pass over the result."""
    least_taps, max_taps, max_points = routines.depthwise_sums
    strides, taps = convolution.stride, convolution.kernel_size
    strided = max(strides) > 1
    match convolution.computed:
        case "weight":
            points = prod(size for size in convolution.output.type.shape[2:] if isinstance(size, int))
            wide = strided and least_taps <= prod(taps) <= max_taps and points <= max_points
            return "sums" if wide else "call"
        case "input" if not strided:
            plain = max(convolution.dilation) == 1
            return "flipped" if plain and all(p < k for p, k in zip(convolution.padding, taps)) else "call"
        case "input":
            return "loops" if reaching_taps(convolution) <= routines.depthwise_taps else "call"
        case "output":
            fused_taps = routines.fused_depthwise_taps if fused else 0
            limit = routines.depthwise_taps if strided else fused_taps
            return "loops" if prod(taps) <= limit else "call"


def _rewritten(operation: ContractionCall, call: ConvolutionCall, forms: Sequence[Form]) -> list[Operation]:
    """Return the operations that replace a call: those of each form, and the call for what it still computes."""
    operations: list[Operation] = []
    flops = floordiv(operation.flops, len(forms))
    made = {each.result.name for each, form in zip(call.convolutions, forms) if form != "call"}
    for each, form in zip(call.convolutions, forms):
        match form:
            case "flipped":
                operations.extend(_flipped(replace(operation, flops=flops), each))
            case "sums":
                operations.extend(_weight_sums(operation, each))
            case "loops":
                weight = Value(f"{each.result.name}.filter", _by_channels(each.weight.type))
                operations.append(_copy(each.weight, weight, operation))
                sum_ = convolution_sum(replace(each, weight=weight), "mul")
                operations.extend(sum_loops(sum_, each.result, None, operation.origin))
    operations.extend(remaining_call(operation, call, made))
    return operations


def _flipped(operation: ContractionCall, gradient: Convolution) -> tuple[Operation, ...]:
    """Return the gradient of an input as the convolution of the output's gradient with the flipped filter.

    The filter has the strides of channels-last, from which ATen concludes that the result has them, also where the
    output has one point, and strides that do not say so.
    """
    given_type = gradient.weight.type
    layout = replace(contiguous(given_type.shape), fixed=True)
    weight = Value(f"{gradient.result.name}.filter", channels_last(replace(given_type, layout=layout)))
    sizes = gradient.kernel_size
    padding = tuple(size - 1 - pad for size, pad in zip(sizes, gradient.padding))
    given = (Ref(gradient.output.name), Ref(weight.name), None, gradient.stride, padding, gradient.dilation)
    arguments = (*given, False, (0,) * len(sizes), gradient.groups)
    call = replace(
        operation, target=CONVOLUTION, results=(gradient.result,), arguments=arguments, unpack=False
    )
    return _copy(gradient.weight, weight, operation, flipped=True), call


def _weight_sums(operation: ContractionCall, gradient: Convolution) -> list[Operation]:
    """Return the gradient of a weight as a sum for each filter point, and the loop that gathers them.

    The sums have the same axes, so that one kernel computes them, which reads the output's gradient once.
    """
    output, result = gradient.output, gradient.result
    channel, batch = Axis("i0", output.type.shape[1]), Axis("n", output.type.shape[0])
    points = tuple(Axis(f"y{k}", size) for k, size in enumerate(output.type.shape[2:]))
    row = (symbol(batch.name), symbol(channel.name))
    b = read(output, (*row, *(symbol(axis.name) for axis in points)))
    axes = element_axes(result.type)
    operations: list[Operation] = []
    body: Expr = const(0.0, f32)
    for tap in _points(gradient.kernel_size):
        at, tests = input_points(gradient, points, tap)
        total = Value(
            f"{result.name}.sum_{'_'.join(map(str, tap))}",
            TensorType(f32, (channel.size,), Layout((1,)), result.type.device),
        )
        term = op("mul", read(gradient.input, (*row, *at), tests), b)
        operations.append(
            Reduction(
                results=(total,), axes=(channel,), reduce_axes=(batch, *points), combiner=NamedCombiner("sum"),
                bodies=(term,), origin=operation.origin,
            )
        )  # fmt: skip
        here = (op("eq", index(symbol(axis.name)), const(k, i64)) for axis, k in zip(axes[2:], tap))
        body = where(logical_and(*here), Load(total.name, (symbol(axes[0].name),), f32), body)
    rounded = cast(body, result.type.dtype)
    operations.append(Pointwise(results=(result,), axes=axes, bodies=(rounded,), origin=operation.origin))
    return operations


def _points(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return all points of a filter."""
    found: list[tuple[int, ...]] = [()]
    for size in sizes:
        found = [(*point, k) for point in found for k in range(size)]
    return found


def _by_channels(type_: TensorType) -> TensorType:
    """Return the type of a filter whose channels are contiguous, so that neighbouring threads read neighbours."""
    rows, one, *taps = type_.shape
    strides: list[Size] = []
    step: Size = rows
    for size in reversed((one, *taps)):
        strides.insert(0, step)
        step = mul(step, size)
    return replace(type_, layout=Layout((1, *strides), fixed=True))


def _copy(weight: Value, result: Value, operation: ContractionCall, flipped: bool = False) -> Pointwise:
    """Return the loop that copies a filter to another layout, or flips it."""
    axes = element_axes(result.type)
    at: list[Size] = [symbol(axis.name) for axis in axes]
    if flipped:
        at[2:] = [add(axis.size, -1, mul(symbol(axis.name), -1)) for axis in axes[2:]]
    body = Load(weight.name, tuple(at), weight.type.dtype)
    return Pointwise(results=(result,), axes=axes, bodies=(body,), origin=operation.origin)
