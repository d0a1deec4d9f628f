"""Convolutions and their gradients as loops on a GPU, on request: implicit GEMM."""

from __future__ import annotations

from dataclasses import dataclass, field

from litz_ir.contraction import Convolution, ConvolutionCall, convolution_call
from litz_ir.dtypes import bf16, f16, f32
from litz_ir.fused import Decision
from litz_ir.loops import LoopGraph, Operation
from litz_ir.origin import Origin
from litz_ir.passes import PassContext
from litz_scheduler import reasons
from litz_scheduler.legality.matmul import gpu_kinds
from litz_scheduler.library.convolution.convolution_bias import channel_sums
from litz_scheduler.library.convolution.convolution_loops import convolution_sum, sum_loops
from litz_scheduler.options import SchedulerOptions

_OPERAND_DTYPES = (bf16, f16, f32)
"""The dtypes of operands that every library accumulates in f32."""


@dataclass(frozen=True, slots=True)
class GeneratedConvolutions:
    """Replace convolutions on a GPU, transposed ones and gradients included, by f32 sums and their epilogues.

    The sums run over channels, filter points or output points; padding counts as zero. All requested gradients of one
    call are replaced together. Depthwise convolutions, which are no matmuls, are left to ``DepthwiseConvolutions``.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """``generated_matmuls`` turns the pass on and selects the calls; ``convolution_precision`` sets the rounding of
    f32 operands."""
    name: str = "generated-convolutions"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""

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
            context.decide(Decision("library", operation.name, "generate", reasons.LIBRARY_GENERATED))
        return data.with_operations(tuple(operations))

    def _loops(self, call: ConvolutionCall, origin: Origin) -> tuple[Operation, ...]:
        """Return the loops that replace a call."""
        operations: list[Operation] = []
        for each in call.convolutions:
            rounded = each.input.type.dtype == f32 and self.options.convolution_precision == "tf32"
            sum_ = convolution_sum(each, "mul_tf32" if rounded else "mul")
            operations.extend(sum_loops(sum_, each.result, call.bias, origin))
        if call.bias_gradient is not None:
            operations.extend(channel_sums(*call.bias_gradient, origin))
        return tuple(operations)


def _suits(call: ConvolutionCall, kinds: frozenset[str]) -> bool:
    """Return whether loops can compute a call as matmuls, on a device of one of these kinds."""
    devices = {each.result.type.device.kind for each in call.convolutions}
    return bool(devices) and devices <= kinds and all(map(_is_matmul, call.convolutions))


def _is_matmul(convolution: Convolution) -> bool:
    types = (convolution.input.type, convolution.output.type, convolution.weight.type)
    if len({type_.dtype for type_ in types}) != 1 or types[0].dtype not in _OPERAND_DTYPES:
        return False
    rows, columns, *_ = types[-1].shape
    return convolution.groups == 1 or (columns != 1 and rows != convolution.groups)
