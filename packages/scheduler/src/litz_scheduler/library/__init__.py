"""Passes that choose how contractions run: library routines or generated loops, layouts, frozen parameters."""

from litz_scheduler.library.attention_calls import ATTENTIONS, GRADIENTS
from litz_scheduler.library.bias import UnfuseBias
from litz_scheduler.library.channels_last import PropagateChannelsLast
from litz_scheduler.library.freeze import FreezeParameterLoops
from litz_scheduler.library.generated_attention import GeneratedAttention
from litz_scheduler.library.generated_convolutions import GeneratedConvolutions
from litz_scheduler.library.generated_matmuls import GeneratedMatmuls
from litz_scheduler.library.leading_dimension import PadLeadingDimension
from litz_scheduler.library.linear import LinearMatmuls
from litz_scheduler.library.prepacked_convolutions import PrepackConvolutions

__all__ = [
    "ATTENTIONS",
    "GRADIENTS",
    "UnfuseBias",
    "PrepackConvolutions",
    "GeneratedAttention",
    "GeneratedConvolutions",
    "GeneratedMatmuls",
    "PropagateChannelsLast",
    "FreezeParameterLoops",
    "PadLeadingDimension",
    "LinearMatmuls",
]
