"""Passes that choose how contractions run: library routines or generated loops, layouts, frozen parameters."""

from litz_scheduler.library.attention.attention_calls import ATTENTIONS, GRADIENTS
from litz_scheduler.library.attention.composed_attention import FuseAttention
from litz_scheduler.library.attention.generated_attention import GeneratedAttention
from litz_scheduler.library.constants.freeze import FreezeParameterLoops
from litz_scheduler.library.constants.frozen_copies import FreezeParameterCopies
from litz_scheduler.library.convolution.convolution_bias import UnfuseConvolutionBias
from litz_scheduler.library.convolution.depthwise_convolutions import DepthwiseConvolutions
from litz_scheduler.library.convolution.fused_relu import FuseConvolutionRelu
from litz_scheduler.library.convolution.generated_convolutions import GeneratedConvolutions
from litz_scheduler.library.convolution.narrow_convolutions import NarrowConvolutions
from litz_scheduler.library.convolution.padded_groups import PadConvolutionGroups
from litz_scheduler.library.convolution.patch_convolutions import PatchConvolutions
from litz_scheduler.library.convolution.prepacked_convolutions import PrepackConvolutions
from litz_scheduler.library.layout.channels_last import PropagateChannelsLast
from litz_scheduler.library.layout.row_major import RowMajorActivations
from litz_scheduler.library.matmul.aligned_matmuls import AlignMatmuls
from litz_scheduler.library.matmul.bias import UnfuseBias
from litz_scheduler.library.matmul.generated_matmuls import GeneratedMatmuls
from litz_scheduler.library.matmul.linear import LinearMatmuls
from litz_scheduler.library.matmul.prepacked_matmuls import PrepackMatmuls

__all__ = [
    "ATTENTIONS",
    "GRADIENTS",
    "FuseAttention",
    "DepthwiseConvolutions",
    "FuseConvolutionRelu",
    "AlignMatmuls",
    "UnfuseBias",
    "UnfuseConvolutionBias",
    "PadConvolutionGroups",
    "NarrowConvolutions",
    "PatchConvolutions",
    "PrepackConvolutions",
    "PrepackMatmuls",
    "GeneratedAttention",
    "GeneratedConvolutions",
    "GeneratedMatmuls",
    "PropagateChannelsLast",
    "RowMajorActivations",
    "FreezeParameterLoops",
    "FreezeParameterCopies",
    "LinearMatmuls",
]
