"""Routines of oneDNN that plans call; where oneDNN fails, the ATen operator runs instead.

oneDNN creates a primitive at its first use, which may fail for want of memory or of generated code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from litz_ir.target import FailureCallback

_ACTIVATIONS = {"none": "none", "hardswish": "hardswish", "silu": "swish", "sigmoid": "sigmoid"}
_FUNCTIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = MappingProxyType(
    {
        "none": lambda x: x,
        "hardswish": torch.nn.functional.hardswish,
        "silu": torch.nn.functional.silu,
        "sigmoid": torch.sigmoid,
    }
)


def _linear(report: FailureCallback) -> Callable[..., torch.Tensor]:
    """Return ``linear`` of f32 matrices."""
    linear_pointwise = torch.ops.mkldnn._linear_pointwise.default

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        try:
            found: torch.Tensor = linear_pointwise(x, weight, bias, "none", [], "")
            return found
        except Exception as error:
            report(error, "ATen multiplies the matrices")
        return torch.nn.functional.linear(x, weight, bias)

    return linear


def _prepack_convolution(report: FailureCallback) -> Callable[..., torch.Tensor]:
    """Return the reordering of a convolution's weight."""
    reorder = torch.ops.mkldnn._reorder_convolution_weight.default

    def prepack(
        weight: torch.Tensor, scale: torch.Tensor | None, padding: Sequence[int], stride: Sequence[int],
        dilation: Sequence[int], groups: int, shape: Sequence[int],
    ) -> torch.Tensor:  # fmt: skip
        """Return a weight, times ``scale`` per output channel, in oneDNN's format for inputs of this shape."""
        if scale is not None:
            weight = weight * scale.view(-1, *(1,) * (weight.dim() - 1))
        weight = weight.contiguous()
        try:
            prepacked: torch.Tensor = reorder(weight, padding, stride, dilation, groups, shape)
            return prepacked
        except Exception as error:
            report(error, "the weight of a convolution is not prepacked")
        return weight

    return prepack


def _convolution(report: FailureCallback) -> Callable[..., torch.Tensor]:
    """Return a convolution with its activation."""
    convolve = torch.ops.mkldnn._convolution_pointwise.default

    def convolution(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, padding: Sequence[int],
        stride: Sequence[int], dilation: Sequence[int], groups: int, activation: str,
    ) -> torch.Tensor:  # fmt: skip
        known = _ACTIVATIONS[activation]
        try:
            found: torch.Tensor = convolve(x, weight, bias, padding, stride, dilation, groups, known, [], "")
            return found
        except Exception as error:
            report(error, "ATen runs the convolution")
        plain = weight.to_dense() if weight.is_mkldnn else weight
        output = torch.convolution(
            x, plain, bias, stride, padding, dilation, False, [0] * len(padding), groups
        )
        # The plan expects channels-last outputs; ATen may choose another layout.
        return _FUNCTIONS[activation](output).contiguous(memory_format=torch.channels_last)

    return convolution


ONEDNN: Mapping[str, Callable[[FailureCallback], Callable[..., Any]]] = MappingProxyType(
    {"linear": _linear, "convolution": _convolution, "prepack_convolution": _prepack_convolution}
)
"""Function that returns each routine, given a callback for failures."""
