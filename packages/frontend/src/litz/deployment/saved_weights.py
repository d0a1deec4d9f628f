"""Weights of a model in the format of safetensors, as content that is written once, from the memory of the tensors.

The library writes files of its own alone. The format is a length, a header in JSON and the elements; here the header is
padded, so that the elements are aligned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

import torch

from litz.deployment.archive import ALIGNMENT, Chunk, Member
from litz.deployment.weights import LENGTH
from litz_ir.errors import ArtifactError

_DTYPES: Mapping[torch.dtype, str] = MappingProxyType(
    {
        torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
        torch.float8_e4m3fn: "F8_E4M3", torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
        torch.float8_e5m2: "F8_E5M2", torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
        torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
        torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
        torch.bool: "BOOL", torch.complex64: "C64",
    }
)  # fmt: skip
"""Names that the format has for dtypes."""


def weights_content(tensors: Mapping[str, torch.Tensor]) -> Member:
    """Return tensors as a file of safetensors, whose elements are those in memory until they are written.

    Elements are in row-major order, those of the largest size first, so that each tensor starts at a multiple of
    the size of its elements. Raises :class:`ArtifactError` for a dtype that the format does not have.
    """
    named = sorted(tensors.items(), key=lambda each: (-each[1].element_size(), each[0]))
    header, elements, end = {}, [], 0
    for name, tensor in named:
        if tensor.dtype not in _DTYPES:
            raise ArtifactError(f"safetensors cannot store the weight {name}, which is of {tensor.dtype}")
        content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        begin, end = end, end + len(content)
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
        elements.append(Chunk(content))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(LENGTH + len(text)) % ALIGNMENT)
    return (Chunk(len(text).to_bytes(LENGTH, "little") + text), *elements)
