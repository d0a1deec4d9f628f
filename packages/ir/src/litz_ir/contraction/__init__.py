"""Contractions: recognition of matmuls and tiled sums among loop nests, and of matmuls and convolutions among calls."""

from litz_ir.contraction.convolution_calls import (
    CONVOLUTION,
    CONVOLUTION_BACKWARD,
    CONVOLUTIONS,
    Convolution,
    ConvolutionArguments,
    ConvolutionCall,
    convolution_arguments,
    convolution_call,
)
from litz_ir.contraction.matmul_calls import (
    MATMULS,
    Epilogue,
    MatmulCall,
    matmul_arguments,
    matmul_call,
    operand_a,
    plain_operands,
)
from litz_ir.contraction.multiplied_operands import (
    F8,
    as_multiplied,
    cast_from,
    narrow_float,
    operands,
)
from litz_ir.contraction.nest import MatmulNest, axes_by_operand, matmul_nest
from litz_ir.contraction.signatures import by_role
from litz_ir.contraction.tiled_sums import MOST_FILTER_POINTS, TiledSum, Window, is_tiled_sum, tiled_sum

__all__ = [
    "CONVOLUTION",
    "CONVOLUTIONS",
    "CONVOLUTION_BACKWARD",
    "F8",
    "MATMULS",
    "Convolution",
    "ConvolutionArguments",
    "ConvolutionCall",
    "Epilogue",
    "MatmulCall",
    "MatmulNest",
    "MOST_FILTER_POINTS",
    "TiledSum",
    "Window",
    "as_multiplied",
    "axes_by_operand",
    "by_role",
    "cast_from",
    "convolution_arguments",
    "convolution_call",
    "is_tiled_sum",
    "matmul_arguments",
    "matmul_call",
    "matmul_nest",
    "narrow_float",
    "operand_a",
    "operands",
    "plain_operands",
    "tiled_sum",
]
