"""Torch's spelling of litz's dtypes and keywords, for source text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from litz_ir.dtypes import ALL, DType
from litz_ir.errors import CodegenError
from litz_ir.loops import Keyword

TORCH_DTYPES: Mapping[DType, str] = MappingProxyType({dtype: f"torch.{dtype.torch_name}" for dtype in ALL})
"""Torch's dtypes by litz's."""

COMPLEX_DTYPES: Mapping[DType, str] = MappingProxyType(
    {dtype: f"torch.{dtype.complex_name}" for dtype in ALL if dtype.complex_name}
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
