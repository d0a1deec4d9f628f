"""Precision of f32 matmuls and convolutions on a GPU, and support of bf16."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable

import torch

from litz.devices import gpu, is_gpu
from litz_scheduler import Precision

log = logging.getLogger("litz")

_FIRST_WITH_BF16 = (8, 0)
"""Lowest compute capability with bf16 arithmetic."""


def f32_matmul_precision() -> Precision:
    """Return the precision that torch's settings allow for f32 matmuls on a GPU at present.

    ``torch.set_float32_matmul_precision``, ``torch.backends.cuda.matmul.allow_tf32`` and the ``fp32_precision``
    settings all change the setting that is read here; torch refuses to read the older ones once the newer are used.
    Dynamo guards it: a function called under another setting is recompiled.
    """
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def f32_convolution_precision() -> Precision:
    """Return the precision that torch's settings allow for f32 convolutions on a GPU at present.

    Layout propagation depends on it too.
    """
    # torch replaces this module by an object, which type checkers do not know.
    known: str = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    return "tf32" if known == "tf32" else "ieee"


def warn_about_bf16(tensors: Iterable[torch.Tensor]) -> None:
    """Warn, once per device, about bf16 tensors on GPUs without bf16 arithmetic."""
    slow = {each.device for each in tensors if each.dtype == torch.bfloat16 and is_gpu(each.device.type)}
    for device in slow:
        _warn(device)


@functools.cache
def _warn(device: torch.device) -> None:
    """Warn about a device, once."""
    if not gpu.is_available():
        return
    capability = gpu.get_device_capability(device)
    if capability < _FIRST_WITH_BF16:
        name, (major, minor) = gpu.get_device_name(device), capability
        log.warning(
            "litz: %s (sm_%d%d) has no arithmetic for bfloat16, which torch emulates", name, major, minor
        )
