"""Conversion of torch's dtypes, memory formats and layouts to litz's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

from litz_ir.dtypes import ALL, DType
from litz_ir.errors import UnsupportedOperation
from litz_ir.loops import Keyword

_TO_TORCH: Mapping[DType, torch.dtype] = MappingProxyType(
    {dtype: getattr(torch, dtype.torch_name) for dtype in ALL}
)
_TO_LITZ = MappingProxyType({theirs: ours for ours, theirs in _TO_TORCH.items()})
_PARTS = MappingProxyType({getattr(torch, dtype.complex_name): dtype for dtype in ALL if dtype.complex_name})


def known_dtype(dtype: torch.dtype) -> bool:
    """True for dtypes with a litz counterpart; false for complex, quantised and sub-byte dtypes."""
    return dtype in _TO_LITZ


def litz_dtype(dtype: torch.dtype) -> DType:
    """Convert a torch dtype; raises :class:`UnsupportedOperation` where litz has no counterpart."""
    found = _TO_LITZ.get(dtype)
    if found is None:
        raise UnsupportedOperation(
            f"tensors of {dtype} are not supported", hint="this graph runs as ATen operations"
        )
    return found


def part_dtype(dtype: torch.dtype) -> DType | None:
    """Dtype of the real and imaginary parts of a complex dtype; None for other dtypes."""
    return _PARTS.get(dtype)


def torch_dtype(dtype: DType) -> torch.dtype:
    """Convert a litz dtype to torch's."""
    return _TO_TORCH[dtype]


def keyword(value: object) -> Keyword | None:
    """Convert a memory format, tensor layout or unknown dtype to a keyword; None for anything else."""
    if isinstance(value, torch.memory_format):
        return Keyword("memory_format", str(value).removeprefix("torch."))
    if isinstance(value, torch.layout):
        return Keyword("layout", str(value).removeprefix("torch."))
    if isinstance(value, torch.dtype):
        return Keyword("dtype", str(value).removeprefix("torch."))
    return None
