"""Convolutions and their gradients as loops on a GPU, on request: implicit GEMM."""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.contraction import Convolution, ConvolutionCall
from litz_ir.dtypes import bf16, f16, f32
from litz_ir.loops import ContractionCall, Operation
from litz_ir.origin import Origin
from litz_scheduler import reasons
from litz_scheduler.library.convolution.convolution_bias import channel_sums
from litz_scheduler.library.convolution.convolution_loops import convolution_sum, sum_loops
from litz_scheduler.library.strategy import Candidate, Choice, Rewriting
from litz_scheduler.options import SchedulerOptions

_OPERAND_DTYPES = (bf16, f16, f32)
"""The dtypes of operands that every library accumulates in f32."""


@dataclass(frozen=True, slots=True)
class GeneratedConvolutions:
    """Convolutions on a GPU, transposed ones and gradients included, as f32 sums and their epilogues.

    The sums run over channels, filter points or output points; padding counts as zero. All requested gradients of one
    call are replaced together. Depthwise convolutions are no matmuls.
    """

    options: SchedulerOptions
    """``generated_matmuls`` selects the calls; ``convolution_precision`` sets the rounding of f32 operands."""
    name: str = "generated-convolutions"
    """The name of the strategy."""

    def candidate(self, call: ContractionCall, rewriting: Rewriting) -> Candidate | None:
        if not self.options.generates(call.origin.node, *(value.name for value in call.results)):
            return None
        known = rewriting.convolution(call)
        if known is None or rewriting.gpu_of(known) is None:
            return None
        if not all(map(_is_matmul, known.convolutions)):
            return None
        choices = (Choice(call.name, "generate", reasons.LIBRARY_GENERATED),)
        return Candidate(choices, lambda: self._loops(known, call.origin))

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


def _is_matmul(convolution: Convolution) -> bool:
    types = (convolution.input.type, convolution.output.type, convolution.weight.type)
    if len({type_.dtype for type_ in types}) != 1 or types[0].dtype not in _OPERAND_DTYPES:
        return False
    rows, columns, *_ = types[-1].shape
    return convolution.groups == 1 or (columns != 1 and rows != convolution.groups)
