"""Convolutions and their gradients as loops on a GPU, where that was asked for: gathered products of matrices."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from litz_ir.contraction import Convolution, ConvolutionCall, convolution_call
from litz_ir.dtypes import bf16, f16, f32
from litz_ir.fused import Decision
from litz_ir.loops import Axis, LoopGraph, NamedCombiner, Operation, Pointwise, Reduction, TensorType, Value
from litz_ir.origin import Origin
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, Load, cast, const, masked, op
from litz_ir.symbols import Size, symbol
from litz_scheduler.legality.matmul import gpu_kinds
from litz_scheduler.library.convolution_loops import ConvolutionSum, convolution_sum
from litz_scheduler.options import SchedulerOptions

OPERAND_DTYPES = (bf16, f16, f32)
"""The dtypes whose products every library sums in f32."""


@dataclass(frozen=True, slots=True)
class GeneratedConvolutions:
    """Let a convolution on a GPU, transposed or not, or the gradients of one be sums in f32 over channels, window or
    places, and what is made of them; those of the gradients that are wanted all together.

    What lies outside of the image counts as zero. Those with a channel for each group stay calls: nothing of theirs is
    a product of matrices.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "generated-convolutions"
    ulp: int = 64

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if not self.options.generated_matmuls:
            return data
        kinds, values = gpu_kinds(context), data.values()
        operations: list[Operation] = []
        for operation in data.operations:
            call = None
            if self.options.generates(operation.origin.node, *(value.name for value in operation.results)):
                call = convolution_call(operation, values)
            if call is None or not _suits(call, kinds):
                operations.append(operation)
                continue
            operations.extend(self._loops(call, operation.origin))
            context.decide(Decision("library", operation.name, "generate", "library.generated"))
        return data.with_operations(tuple(operations))

    def _loops(self, call: ConvolutionCall, origin: Origin) -> tuple[Operation, ...]:
        """The loops that compute what a call does."""
        made: list[Operation] = []
        for each in call.convolutions:
            rounded = each.input.type.dtype == f32 and self.options.convolution_precision == "tf32"
            found = convolution_sum(each, "mul_tf32" if rounded else "mul")
            made.extend(_made_of(found, each.result, call.bias, origin))
        if call.bias_gradient is not None:
            made.extend(_summed_by_channels(*call.bias_gradient, origin))
        return tuple(made)


def _suits(call: ConvolutionCall, kinds: frozenset[str]) -> bool:
    """True where loops can compute a call, by products of matrices on a device of one of these kinds."""
    devices = {each.result.type.device.kind for each in call.convolutions}
    return bool(devices) and devices <= kinds and all(map(_is_product, call.convolutions))


def _is_product(convolution: Convolution) -> bool:
    types = (convolution.input.type, convolution.output.type, convolution.weight.type)
    if len({type_.dtype for type_ in types}) != 1 or types[0].dtype not in OPERAND_DTYPES:
        return False
    rows, columns, *_ = types[-1].shape
    return convolution.groups == 1 or (columns != 1 and rows != convolution.groups)


def _made_of(
    found: ConvolutionSum, result: Value, bias: Value | None, origin: Origin
) -> tuple[Operation, ...]:
    """The sum, and the result that is made of it: rounded once, at the sum's points where the result has others."""
    type_, points = result.type, tuple(symbol(axis.name) for axis in found.axes)
    axes = _axes(type_)
    own = tuple(symbol(axis.name) for axis in axes)
    plain = bias is None and type_.dtype == f32
    total = Value(f"{result.name}.sum", found.type_of(type_, f32))
    if plain and found.exact and found.index == own:
        total = result
    made: list[Operation] = [
        Reduction(
            results=(total,),
            axes=found.axes,
            reduce_axes=found.summed,
            combiner=NamedCombiner("sum"),
            bodies=(found.body,),
            origin=origin,
        )
    ]
    if total is result:
        return tuple(made)
    if found.exact or plain:
        body = _rounded(Load(total.name, found.index, f32), bias, own[1], type_)
        other: Expr = const(0.0, type_.dtype)
    else:
        value = Value(f"{result.name}.rounded", found.type_of(type_, type_.dtype))
        body = _rounded(Load(total.name, points, f32), bias, found.channel, type_)
        made.append(Pointwise(results=(value,), axes=found.axes, bodies=(body,), origin=origin))
        body = Load(value.name, found.index, type_.dtype)
        other = _rounded(const(0.0, f32), bias, own[1], type_)
    made.append(
        Pointwise(results=(result,), axes=axes, bodies=(masked(found.in_bounds, body, other),), origin=origin)
    )
    return tuple(made)


def _rounded(total: Expr, bias: Value | None, channel: Size, type_: TensorType) -> Expr:
    """A sum with the bias of its channel, rounded to the dtype of a type."""
    if bias is not None:
        total = op("add", total, cast(Load(bias.name, (channel,), bias.type.dtype), f32))
    return cast(total, type_.dtype)


def _summed_by_channels(result: Value, source: Value, origin: Origin) -> tuple[Operation, ...]:
    """The sum of all that a channel has, in f32, rounded once."""
    batch, _, *rest = source.type.shape
    own = _axes(result.type)
    summed = (Axis("n", batch), *(Axis(f"y{k}", size) for k, size in enumerate(rest)))
    place = (symbol("n"), symbol(own[0].name), *(symbol(axis.name) for axis in summed[1:]))
    dtype = result.type.dtype
    total = result if dtype == f32 else Value(f"{result.name}.sum", replace(result.type, dtype=f32))
    made = Reduction(
        results=(total,), axes=own, reduce_axes=summed, combiner=NamedCombiner("sum"),
        bodies=(cast(Load(source.name, place, source.type.dtype), f32),), origin=origin,
    )  # fmt: skip
    if total is result:
        return (made,)
    body = cast(Load(total.name, (symbol(own[0].name),), f32), dtype)
    return made, Pointwise(results=(result,), axes=own, bodies=(body,), origin=origin)


def _axes(type_: TensorType) -> tuple[Axis, ...]:
    return tuple(Axis(f"i{k}", size) for k, size in enumerate(type_.shape))
