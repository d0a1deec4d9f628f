"""Assertions about inputs that host programs make where the options ask for them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from litz_ir.errors import InputMismatch, Misaligned

_SIZES_HINT = (
    "guards of Dynamo test this: call the compiled function itself, not its graph with other tensors"
)
_ALIGNMENT_HINT = "copy the input (clone() allocates aligned memory), or turn alignment_asserts off"


def assert_sizes(
    value: torch.Tensor, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, name: str
) -> None:
    """Raise ``InputMismatch`` for an input of another shape, dtype or stride than its graph was compiled for.

    Strides of dimensions of one element, and of empty tensors, are not compared: nothing reads them.
    """
    if value.shape != tuple(shape) or value.dtype is not dtype:
        found = f"{tuple(value.shape)} of {value.dtype}"
        raise InputMismatch(
            f"the input {name} is {found}, the graph was compiled for {tuple(shape)} of {dtype}",
            hint=_SIZES_HINT,
        )
    each = zip(shape, value.stride(), strides, strict=True)
    if value.numel() and not all(size == 1 or own == other for size, own, other in each):
        raise InputMismatch(
            f"the input {name} has strides {value.stride()}, the graph was compiled for {tuple(strides)}",
            hint=_SIZES_HINT,
        )


def assert_aligned(value: torch.Tensor, nbytes: int, name: str) -> None:
    """Raise ``Misaligned`` for an input whose address is no multiple of ``nbytes``."""
    if value.data_ptr() % nbytes:
        raise Misaligned(
            f"the input {name} lies at {value.data_ptr():#x}, which is no multiple of {nbytes} bytes",
            hint=_ALIGNMENT_HINT,
        )
