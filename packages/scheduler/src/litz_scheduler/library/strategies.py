"""The strategies for contractions, a row each."""

from __future__ import annotations

from litz_scheduler.library.attention.generated_attention import GeneratedAttention
from litz_scheduler.library.convolution.convolution_bias import UnfusedConvolutionBias
from litz_scheduler.library.convolution.depthwise_convolutions import DepthwiseForms
from litz_scheduler.library.convolution.generated_convolutions import GeneratedConvolutions
from litz_scheduler.library.convolution.narrow_convolutions import NarrowLoops
from litz_scheduler.library.convolution.padded_groups import PaddedGroups
from litz_scheduler.library.convolution.patch_convolutions import PatchMatmul
from litz_scheduler.library.matmul.aligned_matmuls import AlignedMatmul
from litz_scheduler.library.matmul.bias import UnfusedBias
from litz_scheduler.library.matmul.generated_matmuls import GeneratedMatmuls
from litz_scheduler.library.strategy import Strategy
from litz_scheduler.options import SchedulerOptions


def matmul_strategies(options: SchedulerOptions) -> tuple[Strategy, ...]:
    """Return the strategies that pad operands where views of them are still operations."""
    return (AlignedMatmul(options),)


def contraction_strategies(options: SchedulerOptions) -> tuple[Strategy, ...]:
    """Return the strategies that are chosen before views are inlined and layouts are known."""
    return (
        GeneratedMatmuls(options),
        GeneratedConvolutions(options),
        GeneratedAttention(options),
        UnfusedBias(),
        PatchMatmul(),
        UnfusedConvolutionBias(),
        PaddedGroups(),
    )


def convolution_strategies() -> tuple[Strategy, ...]:
    """Return the strategies that depend on the layout of activations."""
    return NarrowLoops(), DepthwiseForms()
