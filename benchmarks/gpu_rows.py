"""Operations over rows of 256 to 262,144 elements, in bf16 and f32, for a GPU: forward and gradient.

A tensor has 256 MiB, whatever its rows' length, so that no cache holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Program = Callable[..., Tensor]
BYTES = 1 << 28
LENGTHS = (256, 1024, 4096, 16384, 65536, 262144)
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


@dataclass(frozen=True)
class Operation:
    """One operation over the last dimension."""

    program: Program
    """Called with the rows, and what ``others`` makes."""
    others: Callable[[int, int, torch.dtype], tuple[Tensor, ...]] = lambda rows, length, dtype: ()
    """Further arguments for a number of rows of a length: weights, or the class of each row."""


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm by torch's own function."""
    return F.rms_norm(x, (x.shape[-1],), weight, 1e-6)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Layer norm by torch's own function."""
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def weights(count: int, rows: int, length: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Random numbers, one for each column, ``count`` times."""
    return tuple(torch.randn(length, device="cuda", dtype=dtype) for _ in range(count))


def classes(rows: int, length: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """A class for each row."""
    return (torch.randint(0, length, (rows,), device="cuda"),)


OPERATIONS = {
    "softmax": Operation(partial(torch.softmax, dim=-1)),
    "log-softmax": Operation(partial(torch.log_softmax, dim=-1)),
    "RMS norm": Operation(rms_norm, partial(weights, 1)),
    "layer norm": Operation(layer_norm, partial(weights, 2)),
    "cross-entropy": Operation(partial(F.cross_entropy, reduction="none"), classes),
}


def build(operation: Operation, length: int, dtype: torch.dtype) -> tuple[Program, tuple[Tensor, ...]]:
    """Return an operation and its arguments."""
    rows = BYTES // dtype.itemsize // length
    x = torch.randn(rows, length, device="cuda", dtype=dtype)
    return operation.program, (x, *operation.others(rows, length, dtype))


ROWS: dict[str, Callable[[], tuple[Any, tuple[Tensor, ...]]]] = {
    f"{name} of {length} in {spelling}": partial(build, operation, length, dtype)
    for name, operation in OPERATIONS.items()
    for spelling, dtype in DTYPES.items()
    for length in LENGTHS
}
