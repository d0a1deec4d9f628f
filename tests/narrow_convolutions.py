"""Convolutions over few channels, as a GPU runs them, and gradients of their weights: the results of their plans.

Run as a program it prints for them the lines that ``generated_matmuls.py`` prints for matmuls.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from generated_convolutions import last
from generated_matmuls import MACHINE, Case, bytes_of, main, normal
from torch.nn import functional as F

from litz_codegen_triton.capabilities import chip_model
from litz_scheduler import SchedulerOptions

CONVOLUTION, GRADIENTS = "aten.convolution.default", "aten.convolution_backward.default"
H200 = replace(MACHINE, model=chip_model("sm_90"))
"""The traits of ``MACHINE`` with the rates of a GPU, which the model of times needs."""


def stem(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """A convolution over an image in f32, as under autocast, a batch norm of inference and an activation."""
    y = F.conv2d(x.to(w.dtype), w, stride=2, padding=w.shape[-1] // 2)
    mean, variance = torch.zeros_like(scale), torch.ones_like(scale)
    return F.hardswish(F.batch_norm(y, mean, variance, scale, shift))


def of_bytes(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
    """A convolution over an image of bytes, which needs no gradient."""
    return F.relu(F.conv2d(x.to(w.dtype) / 256, w, b, **options)) * 2


def back(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A transposed convolution to three channels, whose input's gradient is a convolution over few channels."""
    return F.conv_transpose2d(x, w, stride=2, padding=1)


def twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Two convolutions over one image, with one filter."""
    return F.conv2d(x, w, stride=2, padding=3) - F.conv2d(x, w, stride=2, padding=2, dilation=1)[:, :, :1, :1]


IMAGE, LATENT = normal(2, 3, 14, 15), normal(2, 4, 8, 8)
BYTES = bytes_of(2, 3, 14, 15, dtype=torch.uint8)
WINDOW, WIDE, BIAS = normal(16, 3, 3, 3), normal(24, 3, 7, 7), normal(16)
NORM = (normal(16).float() + 1, normal(16).float())
WIDE_NORM = (normal(24).float() + 1, normal(24).float())

CASES: Mapping[str, Case] = {
    "stem": Case(stem, (IMAGE.float(), WINDOW, *NORM), 1, 2),
    "stem_last": Case(stem, (last(IMAGE.float()), last(WINDOW), *NORM), 1, 3),
    "wide": Case(partial(F.conv2d, stride=2, padding=3), (IMAGE, WIDE), 1, 1),
    "wide_last": Case(partial(F.conv2d, stride=2, padding=3), (last(IMAGE), last(WIDE)), 1, 3),
    "wide_stem": Case(stem, (last(IMAGE.float()), last(WIDE), *WIDE_NORM), 1, 4),
    "wide_twice": Case(twice, (last(IMAGE), last(WIDE)), 2, 5),
    "wide_rest": Case(
        lambda x, w: F.conv2d(x.to(w.dtype), w, stride=3), (last(IMAGE.float()), last(WIDE)), 1, 4
    ),
    "biased_f16": Case(
        partial(F.conv2d, padding=1), (LATENT.half(), normal(32, 4, 3, 3).half(), normal(32).half()), 1, 1
    ),
    "gray": Case(partial(F.conv2d, padding=(0, 2), dilation=(1, 2)), (IMAGE[:, :1], normal(8, 1, 3, 3)), 1, 1),
    "one_point": Case(F.conv2d, (normal(1, 3, 3, 3), WINDOW), 0, 1),
    "to_few": Case(partial(F.conv2d, padding=1), (IMAGE, normal(3, 3, 3, 3)), 0, 0, calls=(CONVOLUTION,)),
    "many": Case(partial(F.conv2d, padding=1), (normal(2, 8, 9, 9), normal(16, 8, 3, 3)), 0, 0, calls=(CONVOLUTION,)),
    "f32": Case(partial(F.conv2d, padding=1), (IMAGE.float(), WINDOW.float()), 0, 0, calls=(CONVOLUTION,)),
    "groups": Case(
        partial(F.conv2d, padding=1, groups=2), (LATENT, normal(16, 2, 3, 3)), 0, 0, calls=(CONVOLUTION,)
    ),
    "row": Case(partial(F.conv1d, padding=2), (normal(3, 4, 30), normal(24, 4, 5)), 0, 0, calls=(CONVOLUTION,)),
    "gradients": Case(partial(of_bytes, padding=1, stride=2), (BYTES, WINDOW, BIAS), 2, 4, gradients=True),
    "gradients_last": Case(
        partial(of_bytes, padding=1, stride=2), (last(BYTES), last(WINDOW), BIAS), 2, 4, gradients=True
    ),
    "gradients_wide": Case(partial(of_bytes, padding=3, stride=2), (BYTES, WIDE), 2, 4, gradients=True),
    "gradients_of_both": Case(
        partial(F.conv2d, padding=1), (LATENT, normal(32, 4, 3, 3), normal(32)), 2, 3, gradients=True,
        calls=(GRADIENTS,),
    ),
    "gradients_transposed": Case(
        back, (normal(2, 16, 7, 6), normal(16, 3, 4, 4)), 2, 2, gradients=True, calls=(CONVOLUTION,)
    ),
}  # fmt: skip


if __name__ == "__main__":
    main(CASES, Path(sys.argv[1]), sys.argv[2:], SchedulerOptions(), H200)
