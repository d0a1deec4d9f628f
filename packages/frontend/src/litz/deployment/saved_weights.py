"""Weights of a model as a file, written by safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from litz.deployment.archive import ALIGNMENT, Chunk, Member
from litz.deployment.weights import LENGTH
from litz_ir.errors import ArtifactError


def written_weights(path: Path, tensors: Mapping[str, torch.Tensor]) -> Member:
    """Write tensors to a new file, and return its content with its header padded, so that elements are aligned.

    Elements are in row-major order. Raises :class:`ArtifactError` for a dtype that the format does not have.
    """
    contiguous = {name: _own(tensor) for name, tensor in tensors.items()}
    try:
        save_file(contiguous, path)
    except (KeyError, ValueError) as error:
        raise ArtifactError(f"safetensors cannot store the weights: {error}") from error
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(int.from_bytes(file.read(LENGTH), "little"))
    elements = LENGTH + len(header)
    padded = header + b" " * (-elements % ALIGNMENT)
    prefix = len(padded).to_bytes(LENGTH, "little") + padded
    return (Chunk(prefix), Chunk(path=path, offset=elements, size=size - elements))


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on the CPU in row-major order, in memory that it shares with no other one."""
    moved = tensor.detach().cpu().contiguous()
    alone = moved.untyped_storage().nbytes() == moved.numel() * moved.element_size()
    return moved if alone else moved.clone()
