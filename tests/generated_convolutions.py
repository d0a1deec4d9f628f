"""Convolutions and their gradients, generated for a GPU: torch's functions and the results of their plans.

Run as a program it prints for them the lines that ``generated_matmuls.py`` prints for matmuls.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from generated_matmuls import Case, main, normal
from torch.nn import functional as F


def convolution(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, **options: Any) -> torch.Tensor:
    return F.relu(F.conv2d(x, w, b, **options)) * 2


def transposed(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, **options: Any) -> torch.Tensor:
    return F.relu(F.conv_transpose2d(x, w, b, **options)) * 2


def last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


IMAGE, WINDOW, BIAS = normal(2, 20, 9, 11), normal(24, 20, 3, 3), normal(24)
EVEN, PICTURE, BACK = normal(2, 20, 8, 12), normal(2, 3, 14, 15), normal(20, 24, 3, 3)
ROW, CUBE = normal(3, 20, 30), normal(2, 8, 4, 6, 5)

CASES: Mapping[str, Case] = {
    "plain": Case(convolution, (IMAGE, WINDOW, BIAS), 1, 1),
    "padded": Case(partial(convolution, padding=1, stride=2), (IMAGE, WINDOW, None), 1, 1),
    "channels_last": Case(
        partial(convolution, padding=(2, 1), dilation=2), (last(IMAGE), WINDOW, BIAS), 1, 1
    ),
    "f32": Case(partial(F.conv2d, padding=1), (IMAGE.float(), WINDOW.float()), 1, 1),
    "tf32": Case(partial(F.conv2d, padding=1), (IMAGE.float(), WINDOW.float()), 1, 1, precision="tf32"),
    "of_points": Case(convolution, (IMAGE, normal(24, 20, 1, 1), None), 1, 1),
    "row": Case(partial(F.conv1d, padding=2), (ROW, normal(24, 20, 5), BIAS), 1, 1),
    "volume": Case(partial(F.conv3d, padding=1), (normal(2, 8, 5, 6, 7), normal(24, 8, 3, 3, 3)), 1, 1),
    "groups": Case(partial(convolution, padding=1, groups=4), (IMAGE, normal(24, 5, 3, 3), BIAS), 1, 1),
    "groups_last": Case(partial(convolution, stride=2, groups=2), (last(IMAGE), normal(24, 10, 3, 3), None), 1, 1),
    "groups_of_three": Case(partial(F.conv1d, groups=4), (normal(3, 12, 30), normal(8, 3, 3), None), 1, 1),
    "transposed": Case(transposed, (IMAGE, BACK, BIAS), 1, 1),
    "transposed_patches": Case(partial(transposed, stride=2), (IMAGE, normal(20, 24, 2, 2), BIAS), 1, 1),
    "transposed_even": Case(
        partial(transposed, stride=2, padding=1, output_padding=1), (last(IMAGE), BACK, BIAS), 1, 1
    ),
    "transposed_odd": Case(partial(transposed, stride=2, padding=1, dilation=(1, 2)), (IMAGE, BACK, BIAS), 1, 2),
    "transposed_groups": Case(partial(transposed, stride=(1, 2), padding=2, output_padding=(0, 1), groups=2),
                          (IMAGE, normal(20, 12, 3, 4), None), 1, 2),
    "gradients": Case(partial(convolution, padding=1), (EVEN, WINDOW, BIAS), 3, 4, gradients=True),
    "gradients_f16": Case(partial(F.conv2d, padding=1), (EVEN.half(), WINDOW.half()), 3, 3, gradients=True),
    "gradients_f32": Case(partial(F.conv2d, padding=1), (EVEN.float(), WINDOW.float()), 3, 3, gradients=True),
    "gradients_tf32": Case(
        partial(F.conv2d, padding=1), (EVEN.float(), WINDOW.float()), 3, 3, gradients=True, precision="tf32"
    ),
    "gradients_last": Case(
        partial(F.conv2d, padding=1, stride=2), (last(EVEN), last(WINDOW), BIAS), 3, 4, gradients=True
    ),
    "gradients_odd": Case(partial(F.conv2d, padding=1, stride=2), (IMAGE, WINDOW), 3, 4, gradients=True),
    "gradients_of_points": Case(
        partial(F.conv2d, stride=2), (IMAGE, normal(24, 20, 1, 1)), 3, 4, gradients=True
    ),
    "gradients_of_pictures": Case(
        partial(F.conv2d, padding=3, stride=2), (PICTURE, normal(16, 3, 7, 7)), 3, 4, gradients=True
    ),
    "gradients_of_patches": Case(
        partial(F.conv2d, stride=4), (normal(2, 3, 16, 16), normal(16, 3, 4, 4)), 3, 3, gradients=True
    ),
    "gradients_of_rows": Case(
        partial(F.conv1d, padding=2, dilation=2), (ROW, normal(24, 20, 3), BIAS), 3, 4, gradients=True
    ),
    "gradients_of_volumes": Case(
        partial(F.conv3d, padding=1, stride=(2, 2, 1)), (CUBE, normal(16, 8, 3, 3, 3)), 3, 3, gradients=True
    ),
    "gradients_of_groups": Case(
        partial(F.conv2d, padding=1, groups=4), (EVEN, normal(24, 5, 3, 3)), 3, 3, gradients=True
    ),
    "gradients_transposed": Case(
        partial(F.conv_transpose2d, stride=2, padding=1), (IMAGE, BACK, BIAS), 3, 5, gradients=True
    ),
    "gradients_deep": Case(
        partial(F.conv2d, padding=1), (normal(3, 4, 67, 65), normal(8, 4, 3, 3)), 3, 4, gradients=True
    ),
}  # fmt: skip


if __name__ == "__main__":
    main(CASES, Path(sys.argv[1]), sys.argv[2:])
