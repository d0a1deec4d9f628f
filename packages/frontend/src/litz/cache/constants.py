"""Constants of graphs as bytes: their elements one after another, and a description of each as JSON data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

_ALIGNMENT = 64
"""Constants start at multiples of this many bytes, so that a file can be mapped into memory."""


def constants_to_bytes(constants: Mapping[str, torch.Tensor]) -> tuple[list[dict[str, Any]], bytes]:
    """Return the descriptions of constants, and their elements in row-major order; also while a graph is traced."""
    data, described = bytearray(), []
    for name, tensor in constants.items():
        data.extend(bytes(-len(data) % _ALIGNMENT))
        with _disable_current_modes():
            content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        described.append(
            {
                "name": name,
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": list(tensor.shape),
                "strides": list(tensor.stride()),
                "device": tensor.device.type,
                "offset": len(data),
                "bytes": len(content),
            }
        )
        data.extend(content)
    return described, bytes(data)


def constants_from_bytes(described: Iterable[Mapping[str, Any]], content: bytes) -> dict[str, torch.Tensor]:
    """Return constants by name, with their elements and strides, each on the current device of its kind.

    Raises ``KeyError``, ``ValueError`` and others for data that :func:`constants_to_bytes` did not make.
    """
    return {str(each["name"]): _constant(each, content) for each in described}


def files_of(
    constants: Sequence[Mapping[str, torch.Tensor]],
) -> tuple[list[list[dict[str, Any]]], dict[str, bytes]]:
    """Return the descriptions of the constants of several graphs, and a file for each graph, by name."""
    made = [constants_to_bytes(each) for each in constants]
    return [described for described, _ in made], {_file(k): content for k, (_, content) in enumerate(made)}


def constants_in(
    described: Sequence[Iterable[Mapping[str, Any]]], files: Mapping[str, bytes]
) -> tuple[dict[str, torch.Tensor], ...]:
    """Return the constants of several graphs, whose files :func:`files_of` made; raises as
    :func:`constants_from_bytes`."""
    return tuple(constants_from_bytes(each, files[_file(k)]) for k, each in enumerate(described))


def _file(number: int) -> str:
    """Return the name of a graph's file."""
    return f"constants.{number}.bin"


def _constant(data: Mapping[str, Any], content: bytes) -> torch.Tensor:
    """Return one constant."""
    dtype = getattr(torch, data["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"unknown dtype {data['dtype']!r}")
    shape, strides = (tuple(map(int, data[name])) for name in ("shape", "strides"))
    elements = content[data["offset"] : data["offset"] + data["bytes"]]
    made = torch.empty_strided(shape, strides, dtype=dtype, device=data["device"])
    if elements:
        made.copy_(torch.frombuffer(bytearray(elements), dtype=dtype).reshape(shape))
    return made
