"""Tensor descriptors that a launch makes of buffers: arguments of a Triton function.

They take no time on the device, where a thread block needs about a microsecond for each that it makes.
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
    strides: tuple[int, ...]
    block: tuple[int, ...]
    """The shape of a tile."""

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
