"""Convolutions over few channels on a GPU, as those of three colours, and the gradients of their weights as loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from litz_ir.contraction import Convolution, ConvolutionCall
from litz_ir.dtypes import bf16, f16, i64
from litz_ir.loops import ContractionCall, Operation, Pointwise, Value, contiguous
from litz_ir.scalar import Expr, Load, const, index, logical_and, masked, op, substitute_expr
from litz_ir.symbols import Size, add, symbol
from litz_ir.target import DeviceModel
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import next_power_of_two
from litz_scheduler.analysis.graph_facts import element_axes
from litz_scheduler.library.convolution.convolution_loops import convolution_sum, sum_loops
from litz_scheduler.library.convolution.remaining_call import remaining_call
from litz_scheduler.library.layout.channels_last_values import channels_last
from litz_scheduler.library.layout.convolution_layouts import is_channels_last
from litz_scheduler.library.prices import gathered_convolution_seconds, padded_convolution_seconds
from litz_scheduler.library.strategy import Candidate, Choice, Prices, Rewriting

_DTYPES = (bf16, f16)

_RANK = 4
"""Rank of 2-d activations. Others have not been timed."""

_FEW = 2
"""Times that few channels fit into a vector. More have not been timed."""

_STEP = 32
"""Elements that a loop sums at a time. A sum that is longer gathers whole vectors of channels: 7 x 7 by 2, 3 to 64
channels, 64 x 224 x 224 takes 312 us, with a fourth channel of zeros 133, with a border of zeros too 118; 3 x 3 by 2,
128 x 224 x 224, 3 to 16 channels, whose sum fits into one step, 35, 72 and 58 (H200, bf16, channels-last)."""


@dataclass(frozen=True, slots=True)
class NarrowLoops:
    """Convolutions on a GPU in low precision whose input has few channels, and gradients of their weights, as loops.

    Tensor cores load whole vectors of channels: a library pads three or four channels to eight, in a copy of the input,
    and multiplies by the zeros. A loop gathers what there is, and fuses with pointwise readers of its result.
    """

    name: str = "narrow-loops"
    """The name of the strategy."""

    def candidate(self, call: ContractionCall, rewriting: Rewriting) -> Candidate | None:
        known = rewriting.convolution(call)
        machine = None if known is None else rewriting.gpu_of(known)
        if known is None or known.bias is not None or machine is None or machine.routines is None:
            return None
        routines, model = machine.routines, machine.model
        if model.matrix_rate == 0:
            return None
        priced = {
            each: Prices(
                gathered_convolution_seconds(each, routines, model),
                padded_convolution_seconds(each, routines, model),
            )
            for each in known.convolutions
            if _is_narrow(each, model)
        }
        # Of two gradients, that which loops compute in less time is theirs.
        chosen = [each for each, prices in priced.items() if prices.strategy < prices.call] or [*priced]
        if not chosen:
            return None
        total = Prices(*(sum(priced[each][k] for each in chosen) for k in range(2)))
        choices = tuple(Choice(each.result.name, "generate", reasons.LIBRARY_NARROW) for each in chosen)
        return Candidate(choices, lambda: _loops(call, known, chosen, rewriting), total)


def _loops(
    call: ContractionCall, known: ConvolutionCall, chosen: Sequence[Convolution], rewriting: Rewriting
) -> Iterator[Operation]:
    """Yield what remains of a call, and the loops of the convolutions that they compute."""
    yield from remaining_call(call, known, {each.result.name for each in chosen})
    for each in chosen:
        aligned = _aligned(each, call, rewriting) if each.computed == "output" else each
        yield from sum_loops(convolution_sum(aligned, "mul"), each.result, None, call.origin)


def _aligned(convolution: Convolution, call: ContractionCall, rewriting: Rewriting) -> Convolution:
    """Return a convolution over channels that fill vectors, where its sum is long and its input channels-last.

    Its input has the border of zeros, so that no element is tested, and its filter a power of two of points in a
    row where that makes the sum no longer.
    """
    x, weight = convolution.input, convolution.weight
    _, channels, *taps = (size for size in weight.type.shape if isinstance(size, int))
    count = next_power_of_two(channels)
    if count == channels or channels * prod(taps) <= _STEP or not is_channels_last(x.type):
        return convolution
    wide = (*taps[:-1], next_power_of_two(taps[-1]))
    if -(-count * prod(wide) // _STEP) == -(-count * prod(taps) // _STEP):
        taps = [*wide]
    geometry = zip(convolution.output.type.shape[2:], convolution.stride, convolution.dilation, taps)
    sizes = [(n - 1) * s + (k - 1) * d + 1 for n, s, d, k in geometry if isinstance(n, int)]
    return replace(
        convolution,
        input=_with_zeros(x, (count, *sizes), convolution.padding, call, rewriting),
        weight=_with_zeros(weight, (count, *taps), (0,) * len(taps), call, rewriting),
        padding=(0,) * len(taps),
    )


def _with_zeros(
    value: Value, sizes: Sequence[int], before: Sequence[int], call: ContractionCall, rewriting: Rewriting
) -> Value:
    """Return a copy in channels-last of other ``sizes`` behind the first, with zeros where the value has nothing.

    ``before`` has the zeros before each spatial dimension. The loop that computes the value makes the copy instead,
    where nothing else reads the value and the copy has all of it, so that it reports the same faults.
    """
    shape = (value.type.shape[0], *sizes)
    type_ = channels_last(replace(value.type, shape=shape, layout=contiguous(shape, fixed=True)))
    copy = Value(f"{value.name}.padded{'x'.join(map(str, (*sizes, *before)))}", type_)
    if copy.name in rewriting.made:
        return copy
    rewriting.made.add(copy.name)
    axes = element_axes(type_)
    batch, channel, *inner = (symbol(axis.name) for axis in axes)
    points = (batch, channel, *(add(at, -count) for at, count in zip(inner, before)))
    body: Expr = Load(value.name, points, type_.dtype)
    whole = all(
        padded - count >= size
        for padded, count, size in zip(sizes, (0, *before), value.type.shape[1:])
        if isinstance(size, int)
    )
    producer = _sole_producer(value, call, rewriting) if whole else None
    if producer is not None:
        own = {axis.name: point for axis, point in zip(producer.axes, points, strict=True)}
        body = substitute_expr(producer.bodies[0], own)
    pairs = zip(points[1:], value.type.shape[1:], sizes, (0, *before))
    inside = [test for at_, size, all_, count in pairs for test in _tests(at_, size, all_, count)]
    body = masked(logical_and(*inside), body, const(0, type_.dtype))
    origin = call.origin if producer is None else producer.origin
    loop = Pointwise(results=(copy,), axes=axes, bodies=(body,), origin=origin)
    if producer is None:
        rewriting.emit(loop)
    else:
        rewriting.exchange(producer, loop)
    return copy


def _sole_producer(value: Value, call: ContractionCall, rewriting: Rewriting) -> Pointwise | None:
    """Return the loop that computes a value for a call alone."""
    readers = rewriting.readers.get(value.name, ())
    if value.name in rewriting.returned or any(each.name != call.name for each in readers):
        return None
    producer = rewriting.producers.get(value.name)
    if not isinstance(producer, Pointwise) or producer.results != (value,) or producer.token:
        return None
    return producer if value.replaces is None else None


def _tests(at: Size, size: Size, padded: int, before: int) -> tuple[Expr, ...]:
    """Return the tests that an index into a padded dimension, less the zeros before it, is one of the dimension."""
    assert isinstance(size, int), "the sizes of a convolution are known"
    low = (op("ge", index(at), const(0, i64)),) if before else ()
    return (*low, op("lt", index(at), index(size))) if padded - before > size else low


def _is_narrow(convolution: Convolution, model: DeviceModel) -> bool:
    """Return whether the input of a convolution has few channels, and the convolution a form that has been timed."""
    types = (convolution.input.type, convolution.output.type, convolution.weight.type)
    dtype = types[0].dtype
    if convolution.computed == "input":
        return False
    if dtype not in _DTYPES or any(type_.dtype != dtype for type_ in types) or len(types[0].shape) != _RANK:
        return False
    outputs, channels, *_ = types[2].shape
    assert isinstance(outputs, int) and isinstance(channels, int), "the sizes of a convolution are known"
    few, many = channels * _FEW, outputs
    return convolution.groups == 1 and few * dtype.itemsize <= model.vector_bytes <= many * dtype.itemsize
