"""Torch's spelling of litz's dtypes and keywords, for source text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from litz_ir import dtypes
from litz_ir.dtypes import DType
from litz_ir.errors import CodegenError
from litz_ir.loops import Keyword

TORCH_DTYPES: Mapping[DType, str] = MappingProxyType(
    {
        dtypes.f64: "torch.float64",
        dtypes.f32: "torch.float32",
        dtypes.bf16: "torch.bfloat16",
        dtypes.f16: "torch.float16",
        dtypes.f8e4m3fn: "torch.float8_e4m3fn",
        dtypes.f8e5m2: "torch.float8_e5m2",
        dtypes.f8e4m3fnuz: "torch.float8_e4m3fnuz",
        dtypes.f8e5m2fnuz: "torch.float8_e5m2fnuz",
        dtypes.i64: "torch.int64",
        dtypes.i32: "torch.int32",
        dtypes.i16: "torch.int16",
        dtypes.i8: "torch.int8",
        dtypes.u64: "torch.uint64",
        dtypes.u32: "torch.uint32",
        dtypes.u16: "torch.uint16",
        dtypes.u8: "torch.uint8",
        dtypes.b1: "torch.bool",
    }
)
"""Torch's dtypes by litz's."""

COMPLEX_DTYPES: Mapping[DType, str] = MappingProxyType(
    {dtypes.f64: "torch.complex128", dtypes.f32: "torch.complex64", dtypes.f16: "torch.complex32"}
)
"""Torch's complex dtypes by the dtype of their real part."""

_KINDS = ("memory_format", "layout", "dtype")
"""Enumerations of torch that may be arguments."""


def keyword_source(keyword: Keyword) -> str:
    """Return ``torch.channels_last`` for ``Keyword("memory_format", "channels_last")``; raise :class:`CodegenError`
    for other kinds."""
    if keyword.kind not in _KINDS or not keyword.name.isidentifier():
        raise CodegenError(f"a call's argument is of unknown kind {keyword.kind!r}", node=keyword.name)
    return f"torch.{keyword.name}"
