"""Convolutions over patches that do not overlap, as a GPU runs them: the results of plans with matmuls of ATen.

Run as a program it prints for them the lines that ``generated_matmuls.py`` prints for matmuls.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from generated_convolutions import last
from generated_matmuls import Case, bytes_of, main, normal
from narrow_convolutions import H200
from torch.nn import functional as F

from litz_scheduler import SchedulerOptions


def embedded(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Patches as rows of a sequence, from f32 as under autocast, with what is learned of their positions."""
    made = F.conv2d(x.bfloat16(), w.bfloat16(), b.bfloat16(), stride=4)
    return (made.flatten(2).transpose(1, 2) + p).bfloat16()


def normalised(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Patches whose channels are normalised, as in a stem."""
    rows = F.conv2d(scaled(x, w), w, b, stride=4).permute(0, 2, 3, 1)
    return F.layer_norm(rows, (rows.shape[-1],)).permute(0, 3, 1, 2)


def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return the bytes of an image, which needs no gradient, as numbers of the dtype of ``w``."""
    return x.to(w.dtype) / 256


def of_bytes(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
    function = F.conv1d if w.ndim == 3 else F.conv2d
    return function(scaled(x, w), w, b, **options)


def enlarged(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A transposed convolution to three channels, whose gradients are convolutions over patches."""
    return F.conv_transpose2d(x, w, stride=4)


IMAGE, LATENT, ODD = normal(2, 3, 16, 20), normal(2, 4, 6, 8), normal(3, 3, 15, 18)
BYTES, ODD_BYTES = bytes_of(2, 3, 16, 20, dtype=torch.uint8), bytes_of(3, 3, 15, 18, dtype=torch.uint8)
WINDOW, BIAS, SMALL, PLACES = normal(24, 3, 4, 4), normal(24), normal(16, 4, 2, 2), normal(20, 24)
WIDE = tuple(each.float() for each in (IMAGE, WINDOW, BIAS, PLACES))

CASES: Mapping[str, Case] = {
    "embedded": Case(embedded, WIDE, 0, 3),
    "normalised": Case(normalised, (BYTES, WINDOW, BIAS), 0, 2),
    "plain": Case(partial(F.conv2d, stride=4), (IMAGE, WINDOW), 0, 2),
    "with_rests": Case(partial(F.conv2d, stride=4), (ODD, WINDOW, BIAS), 0, 2),
    "latents": Case(partial(F.conv2d, stride=2), (LATENT.half(), SMALL.half(), normal(16).half()), 0, 2),
    "channels_last": Case(partial(F.conv2d, stride=2), (last(LATENT), last(SMALL), normal(16)), 0, 2),
    "rows": Case(partial(F.conv1d, stride=8), (normal(3, 5, 43), normal(16, 5, 8), normal(16)), 0, 2),
    "volumes": Case(
        partial(F.conv3d, stride=(2, 2, 4)), (normal(2, 3, 4, 5, 8), normal(8, 3, 2, 2, 4), normal(8)), 0, 2
    ),
    "one_patch": Case(partial(F.conv2d, stride=4), (normal(1, 3, 4, 4), WINDOW, BIAS), 0, 2),
    "gradients": Case(partial(of_bytes, stride=4), (BYTES, WINDOW, BIAS), 0, 6, gradients=True),
    "gradients_with_rests": Case(partial(of_bytes, stride=4), (ODD_BYTES, WINDOW, BIAS), 0, 6, gradients=True),
    "gradients_normalised": Case(normalised, (BYTES, WINDOW, BIAS), 0, 6, gradients=True),
    "gradients_last": Case(
        partial(of_bytes, stride=2), (last(bytes_of(2, 4, 6, 8, dtype=torch.uint8)), last(SMALL)), 0, 4, gradients=True
    ),
    "gradients_of_rows": Case(
        partial(of_bytes, stride=8), (bytes_of(3, 5, 43, dtype=torch.uint8), normal(16, 5, 8)), 0, 5, gradients=True
    ),
    "gradients_transposed": Case(enlarged, (normal(2, 8, 5, 6), normal(8, 3, 4, 4)), 0, 3, gradients=True),
}  # fmt: skip


if __name__ == "__main__":
    main(CASES, Path(sys.argv[1]), sys.argv[2:], SchedulerOptions(), H200)
