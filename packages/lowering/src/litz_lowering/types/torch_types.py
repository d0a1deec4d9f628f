"""Conversion of torch's dtypes, memory formats and layouts to litz's."""

from __future__ import annotations

from types import MappingProxyType

import torch

from litz_ir import dtypes
from litz_ir.dtypes import DType
from litz_ir.errors import UnsupportedOperation
from litz_ir.loops import Keyword

_PAIRS = (
    (torch.float64, dtypes.f64),
    (torch.float32, dtypes.f32),
    (torch.bfloat16, dtypes.bf16),
    (torch.float16, dtypes.f16),
    (torch.float8_e4m3fn, dtypes.f8e4m3fn),
    (torch.float8_e5m2, dtypes.f8e5m2),
    (torch.float8_e4m3fnuz, dtypes.f8e4m3fnuz),
    (torch.float8_e5m2fnuz, dtypes.f8e5m2fnuz),
    (torch.int64, dtypes.i64),
    (torch.int32, dtypes.i32),
    (torch.int16, dtypes.i16),
    (torch.int8, dtypes.i8),
    (torch.uint64, dtypes.u64),
    (torch.uint32, dtypes.u32),
    (torch.uint16, dtypes.u16),
    (torch.uint8, dtypes.u8),
    (torch.bool, dtypes.b1),
)
_PARTS = MappingProxyType(
    {torch.complex128: dtypes.f64, torch.complex64: dtypes.f32, torch.complex32: dtypes.f16}
)
_TO_LITZ = MappingProxyType(dict(_PAIRS))
_TO_TORCH = MappingProxyType({ours: theirs for theirs, ours in _PAIRS})


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
