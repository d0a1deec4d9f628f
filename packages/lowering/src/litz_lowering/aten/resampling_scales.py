"""Scales of resampling that eager's kernels on a CPU do not use.

A scale that leaves a side as it is (1.3 of 3 elements gives 3) would move elements, and some kernels copy them instead;
some repeat each element of a side that is doubled. Torch's decompositions use the scale in all of these cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp.decompositions import upsample_compute_output_size

Scales = list[float | None]

_LINEAR = frozenset({"upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"})
"""Operators that copy sides of equal size."""

_BYTES = frozenset({"upsample_bilinear2d", "upsample_bicubic2d"})
"""Operators that copy sides of equal size of ``uint8``."""

_WITHOUT_SCALE = (None, 1.0, 2.0)
"""Scales that give the same elements as the sizes do."""


def split_resampling_arguments(arguments: Sequence[Any]) -> tuple[list[bool], Scales]:
    """Split the arguments after the size into ``align_corners``, where the operator has it, and the scales.

    Overloads ``vec`` list the scales, others have an argument for each.
    """
    corners = [argument for argument in arguments if isinstance(argument, bool)]
    scales = [argument for argument in arguments if not isinstance(argument, bool)]
    if len(scales) == 1 and isinstance(scales[0], list | tuple):
        scales = list(scales[0])
    return corners, scales


def resampled_size(x: Tensor, size: Sequence[Any] | None, scales: Scales) -> list[Any]:
    """Return the spatial size of a result, which is ``size`` unless it is ``None``."""
    return list(size) if size is not None else list(upsample_compute_output_size(x.shape, None, scales))


def effective_scales(name: str, x: Tensor, size: Sequence[Any], scales: Scales) -> Scales:
    """Return the scales of the operator ``name`` that eager uses for an input and a spatial size; others are None.

    Comparing symbolic sizes adds guards, which happens only for scales that some size may make ineffective.
    """
    if x.device.type != "cpu" or x.dim() != len(size) + 2 or all(scale in _WITHOUT_SCALE for scale in scales):
        return scales
    same = name in _LINEAR or (name in _BYTES and x.dtype == torch.uint8)
    repeats = _copies_rows(name, x, size)
    if not (same or repeats):
        return scales
    return [
        None if scale in _WITHOUT_SCALE or after == before or (repeats and after == 2 * before) else scale
        for scale, before, after in zip(scales, x.shape[2:], size, strict=True)
    ]


def _copies_rows(name: str, x: Tensor, size: Sequence[Any]) -> bool:
    """Report whether eager runs the kernel of nearest resampling that copies all channels or rows at once."""
    if name == "upsample_nearest2d":
        last = x.shape[1] > 3 and x.is_contiguous(memory_format=torch.channels_last)
        return last or bool(size[0] + size[1] <= 128)
    if name == "upsample_nearest3d":
        return bool(x.shape[1] > 3) and x.is_contiguous(memory_format=torch.channels_last_3d)
    return False
