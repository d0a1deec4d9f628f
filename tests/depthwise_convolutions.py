"""Depthwise convolutions on a GPU and their gradients: torch's functions and the results of their plans.

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

CONVOLUTION, GRADIENTS = "aten.convolution.default", "aten.convolution_backward.default"


def last(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Return normal numbers in channels-last."""
    return normal(*shape, dtype=dtype).contiguous(memory_format=torch.channels_last)


def depthwise(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, **options: Any
) -> torch.Tensor:
    return F.conv2d(x, w, b, groups=x.shape[1], **options)


def transposed(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, **options: Any
) -> torch.Tensor:
    return F.conv_transpose2d(x, w, b, groups=x.shape[1], **options)


def activated(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, **options: Any
) -> torch.Tensor:
    return F.relu(depthwise(x, w, b, **options)) * 2


def shared(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Use a filter and a result twice."""
    y = depthwise(x, w, padding=1, stride=2)
    return depthwise(y, w, padding=1, stride=2) + y[:, :, :3, :3]


def expanded(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Filter all channels alike."""
    return depthwise(x, w.expand(x.shape[1], 1, 3, 3), padding=1)


IMAGE, EVEN, POINT = last(2, 16, 9, 11), last(2, 16, 8, 12), last(3, 24, 3, 3)
SMALL, MIDDLE, LARGE = normal(16, 1, 3, 3), normal(16, 1, 5, 5), normal(16, 1, 7, 7)
BIAS = normal(16)
HALF = (last(2, 16, 9, 11, dtype=torch.float16), normal(16, 1, 3, 3, dtype=torch.float16))

CASES: Mapping[str, Case] = {
    "strided": Case(partial(depthwise, padding=1, stride=2), (IMAGE, SMALL), 0, 2),
    "strided_f16": Case(partial(depthwise, padding=1, stride=2), HALF, 0, 2),
    "strided_by_three": Case(partial(activated, padding=2, stride=3), (IMAGE, MIDDLE, BIAS), 0, 2),
    "strided_along_rows": Case(
        partial(activated, padding=(2, 0), stride=(1, 2), dilation=(2, 1)), (IMAGE, normal(16, 1, 4, 3), None), 0, 2
    ),
    "read": Case(partial(activated, padding=1), (IMAGE, SMALL, BIAS), 0, 2),
    "read_wide": Case(partial(activated, padding=2), (IMAGE, MIDDLE, BIAS), 0, 1, calls=(CONVOLUTION,)),
    "returned": Case(partial(depthwise, padding=1), (IMAGE, SMALL), 0, 0, calls=(CONVOLUTION,)),
    "used_twice": Case(shared, (IMAGE, SMALL), 0, 3),
    "transposed": Case(partial(transposed, padding=1, stride=2, output_padding=1), (IMAGE, SMALL, BIAS), 0, 2),
    "transposed_odd": Case(partial(transposed, padding=2, stride=2), (IMAGE, MIDDLE, BIAS), 0, 3),
    "transposed_gaps": Case(partial(transposed, stride=3, output_padding=(1, 0)), (POINT, normal(24, 1, 2, 2)), 0, 3),
    "transposed_patches": Case(partial(transposed, stride=2), (IMAGE, normal(16, 1, 2, 2), BIAS), 0, 2),
    "transposed_plain": Case(partial(transposed, padding=1), (IMAGE, MIDDLE), 0, 1, calls=(CONVOLUTION,)),
    "gradients": Case(
        partial(depthwise, padding=1), (IMAGE, SMALL, BIAS), 0, 4, gradients=True, calls=(CONVOLUTION, GRADIENTS)
    ),
    "gradients_f16": Case(
        partial(depthwise, padding=1), HALF, 0, 1, gradients=True, calls=(CONVOLUTION, CONVOLUTION, GRADIENTS)
    ),
    "gradients_whole": Case(
        depthwise, (POINT, normal(24, 1, 3, 3)), 0, 1, gradients=True, calls=(CONVOLUTION, CONVOLUTION, GRADIENTS)
    ),
    "gradients_large": Case(
        partial(depthwise, padding=3), (EVEN, LARGE), 0, 1, gradients=True,
        calls=(CONVOLUTION, CONVOLUTION, GRADIENTS),
    ),
    "gradients_expanded": Case(
        expanded, (EVEN, normal(1, 1, 3, 3)), 0, 2, gradients=True, calls=(CONVOLUTION, CONVOLUTION, GRADIENTS)
    ),
    "gradients_dilated": Case(
        partial(depthwise, padding=2, dilation=2), (EVEN, SMALL), 0, 0, gradients=True, calls=(CONVOLUTION, GRADIENTS)
    ),
    "gradients_strided": Case(
        partial(depthwise, padding=1, stride=2), (EVEN, SMALL), 0, 4, gradients=True, calls=(GRADIENTS,)
    ),
    "gradients_strided_odd": Case(
        partial(depthwise, padding=1, stride=2), (IMAGE, SMALL), 0, 5, gradients=True, calls=(GRADIENTS,)
    ),
    "gradients_strided_by_three": Case(
        partial(depthwise, stride=3), (IMAGE, normal(16, 1, 2, 2), BIAS), 0, 6, gradients=True, calls=(GRADIENTS,)
    ),
    "gradients_summed": Case(
        partial(depthwise, padding=2, stride=2), (EVEN, MIDDLE), 0, 5, gradients=True
    ),
    "gradients_summed_odd": Case(
        partial(depthwise, padding=(2, 1), stride=(1, 2), dilation=(1, 2)),
        (last(2, 16, 7, 9), normal(16, 1, 5, 3)), 0, 6, gradients=True,
    ),
    "gradients_transposed": Case(
        partial(transposed, padding=1, stride=2, output_padding=1), (EVEN, SMALL), 0, 4, gradients=True,
        calls=(GRADIENTS,),
    ),
    "gradients_transposed_summed": Case(
        partial(transposed, padding=2, stride=2), (last(2, 16, 7, 7), MIDDLE), 0, 6, gradients=True
    ),
    "gradients_transposed_plain": Case(
        partial(transposed, padding=1), (EVEN, SMALL, BIAS), 0, 3, gradients=True, calls=(CONVOLUTION, GRADIENTS)
    ),
}  # fmt: skip


if __name__ == "__main__":
    main(CASES, Path(sys.argv[1]), sys.argv[2:])
