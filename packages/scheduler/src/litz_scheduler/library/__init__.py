"""Passes that choose how contractions run: library routines or generated loops, layouts, frozen parameters."""

from litz_scheduler.analysis.cost import static_bytes
from litz_scheduler.analysis.graph_facts import element_axes
from litz_scheduler.library.attention.attention_calls import ATTENTIONS, GRADIENTS
from litz_scheduler.library.attention.composed_attention import FuseAttention
from litz_scheduler.library.constants.freeze import FreezeParameterLoops
from litz_scheduler.library.constants.frozen_copies import FreezeParameterCopies
from litz_scheduler.library.convolution.fused_relu import FuseConvolutionRelu
from litz_scheduler.library.convolution.prepacked_convolutions import PrepackConvolutions
from litz_scheduler.library.layout.channels_last import PropagateChannelsLast
from litz_scheduler.library.layout.row_major import RowMajorActivations
from litz_scheduler.library.matmul.linear import LinearMatmuls
from litz_scheduler.library.matmul.prepacked_matmuls import PrepackMatmuls
from litz_scheduler.library.strategies import (
    contraction_strategies,
    convolution_strategies,
    matmul_strategies,
)
from litz_scheduler.library.strategy import (
    Candidate,
    Choice,
    ChooseStrategies,
    Prices,
    Rewriting,
    Strategy,
)

__all__ = [
    "ATTENTIONS",
    "Candidate",
    "Choice",
    "ChooseStrategies",
    "Prices",
    "Rewriting",
    "Strategy",
    "contraction_strategies",
    "element_axes",
    "static_bytes",
    "convolution_strategies",
    "matmul_strategies",
    "GRADIENTS",
    "FuseAttention",
    "FuseConvolutionRelu",
    "PrepackConvolutions",
    "PrepackMatmuls",
    "PropagateChannelsLast",
    "RowMajorActivations",
    "FreezeParameterLoops",
    "FreezeParameterCopies",
    "LinearMatmuls",
]
