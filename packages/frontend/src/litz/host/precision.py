"""How precisely products of matrices are asked for on a GPU, and whether its chip has the numbers for it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable

import torch

from litz_scheduler import Precision

log = logging.getLogger("litz")

_FIRST_WITH_BF16 = (8, 0)
"""The compute capability of the first chips that multiply bf16."""


def f32_matmul_precision() -> Precision:
    """What torch's settings let the GPU's products of f32 be at this moment.

    ``torch.set_float32_matmul_precision``, ``torch.backends.cuda.matmul.allow_tf32`` and the various
    ``fp32_precision`` all end up in what is read here; where the newer ones are used torch refuses to read the older.
    Dynamo guards it: a function that is called under another setting is compiled anew.
    """
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def f32_convolution_precision() -> Precision:
    """What torch's settings let the GPU's convolutions of f32 be at this moment; it decides how images are laid out."""
    # torch puts a class in the module's place, which type checkers do not see.
    known: str = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    return "tf32" if known == "tf32" else "ieee"


def warn_about_bf16(tensors: Iterable[torch.Tensor]) -> None:
    """Warn, once for each device, of tensors of bf16 on chips that have no arithmetic for it."""
    slow = {each.device for each in tensors if each.dtype == torch.bfloat16 and each.device.type == "cuda"}
    for device in slow:
        _tell(device)


@functools.cache
def _tell(device: torch.device) -> None:
    if not torch.cuda.is_available():
        return
    capability = torch.cuda.get_device_capability(device)
    if capability < _FIRST_WITH_BF16:
        name, (major, minor) = torch.cuda.get_device_name(device), capability
        log.warning(
            "litz: %s (sm_%d%d) has no arithmetic for bfloat16, which torch emulates", name, major, minor
        )
