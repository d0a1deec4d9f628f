"""The routines that oneDNN runs, chosen by litz: where oneDNN fails, ATen's own operator runs instead.

A primitive is made when it is first called for, and may want memory or code that is not to be had.
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


def _linear(told: FailureCallback) -> Callable[..., torch.Tensor]:
    product = torch.ops.mkldnn._linear_pointwise.default

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        try:
            found: torch.Tensor = product(x, weight, bias, "none", [], "")
            return found
        except Exception as error:
            told(error, "ATen multiplies the matrices")
        return torch.nn.functional.linear(x, weight, bias)

    return linear


def _pack_convolution(told: FailureCallback) -> Callable[..., torch.Tensor]:
    reorder = torch.ops.mkldnn._reorder_convolution_weight.default

    def pack(
        weight: torch.Tensor, factor: torch.Tensor | None, padding: Sequence[int], stride: Sequence[int],
        dilation: Sequence[int], groups: int, shape: Sequence[int],
    ) -> torch.Tensor:  # fmt: skip
        """A weight, times ``factor`` per output channel, as oneDNN wants it for images of this shape."""
        if factor is not None:
            weight = weight * factor.view(-1, *(1,) * (weight.dim() - 1))
        weight = weight.contiguous()
        try:
            packed: torch.Tensor = reorder(weight, padding, stride, dilation, groups, shape)
            return packed
        except Exception as error:
            told(error, "the weight of a convolution is not packed")
        return weight

    return pack


def _convolution(told: FailureCallback) -> Callable[..., torch.Tensor]:
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
            told(error, "ATen runs the convolution")
        plain = weight.to_dense() if weight.is_mkldnn else weight
        image = torch.convolution(
            x, plain, bias, stride, padding, dilation, False, [0] * len(padding), groups
        )
        # Images are channels-last from here on, whatever ATen makes.
        return _FUNCTIONS[activation](image).contiguous(memory_format=torch.channels_last)

    return convolution


ONEDNN: Mapping[str, Callable[[FailureCallback], Callable[..., Any]]] = MappingProxyType(
    {"linear": _linear, "convolution": _convolution, "prepack_convolution": _pack_convolution}
)
"""Makers of each routine, which tells of failures."""
