"""Routine of cuDNN that plans call; where cuDNN fails, ATen's operators run instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from litz_ir.target import FailureCallback


def _convolution_relu(report: FailureCallback) -> Callable[..., torch.Tensor]:
    """Return a convolution of channels-last tensors with a bias and ReLU."""

    def convolution_relu(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, added: torch.Tensor | None,
        padding: Sequence[int], stride: Sequence[int], dilation: Sequence[int],
    ) -> torch.Tensor:  # fmt: skip
        """Return ``relu(convolution(x, weight) + bias + added)``, rounded once and in channels-last."""
        try:
            if added is None:
                return torch.cudnn_convolution_relu(x, weight, bias, stride, padding, dilation, 1)
            return torch.cudnn_convolution_add_relu(x, weight, added, 1.0, bias, stride, padding, dilation, 1)
        except Exception as error:
            report(error, "ATen runs the convolution, and ReLU in a kernel of its own")
        found = torch.convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(padding), 1)
        found = found if added is None else found + added
        # The plan expects channels-last outputs; ATen may choose another layout.
        return torch.relu(found).contiguous(memory_format=torch.channels_last)

    return convolution_relu


CUDNN: Mapping[str, Callable[[FailureCallback], Callable[..., Any]]] = MappingProxyType(
    {"convolution_relu": _convolution_relu}
)
"""Function that returns each routine, given a callback for failures."""
