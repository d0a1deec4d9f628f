"""Tensor descriptors that a launch makes of buffers: arguments of a Triton function.

Thread blocks need not make these themselves, which takes each about a microsecond a descriptor.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorDescriptor:
    """A tensor descriptor that a launch makes of a buffer, an argument of a Triton function."""

    buffer: int
    """Position of the buffer among the arguments."""
    dtype: str
    """The type of its elements in Triton's spelling."""
    shape: tuple[int, ...]
    """Extents of the buffer in elements, the slowest dimension first. Elements past them are read as zeros."""
    strides: tuple[int, ...]
    """Strides in elements, in the order of ``shape``; the last one is 1."""
    block: tuple[int, ...]
    """Extents of a tile in elements, in the order of ``shape``."""

    @property
    def type(self) -> str:
        """The type of the argument in Triton's spelling."""
        return f"tensordesc<{self.dtype}[{', '.join(map(str, self.block))}]>"


def descriptors_text(descriptors: tuple[TensorDescriptor, ...]) -> str:
    """Write descriptors as a line of JSON."""
    return json.dumps(
        [[each.buffer, each.dtype, each.shape, each.strides, each.block] for each in descriptors]
    )


def descriptors_of(text: str) -> tuple[TensorDescriptor, ...]:
    """Read the result of :func:`descriptors_text`. Raises ``ValueError`` and ``TypeError`` for other text."""
    return tuple(
        TensorDescriptor(int(buffer), str(dtype), tuple(shape), tuple(strides), tuple(block))
        for buffer, dtype, shape, strides, block in json.loads(text)
    )
