"""Buffers, their types, and the axes of loops."""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.device import CPU, Device
from litz_ir.dtypes import DType
from litz_ir.loops.layout import Layout, contiguous
from litz_ir.symbols.term import Size


@dataclass(frozen=True, slots=True)
class TensorType:
    """Dtype, logical shape, memory layout and device of a buffer."""

    dtype: DType
    """Dtype of the elements."""
    shape: tuple[Size, ...]
    """Logical shape."""
    layout: Layout
    """Strides and offset."""
    device: Device = CPU
    """Device of the memory."""


def tensor_type(dtype: DType, *shape: Size, device: Device = CPU) -> TensorType:
    """A row-major type whose layout the scheduler may change."""
    return TensorType(dtype, shape, contiguous(shape), device)


@dataclass(frozen=True, slots=True)
class Value:
    """A named buffer."""

    name: str
    """Name, unique in the graph."""
    type: TensorType
    """Type of the buffer."""
    replaces: str | None = None
    """Name of the version that this new version overwrites in place; ``None`` for a buffer's first version."""


@dataclass(frozen=True, slots=True)
class ComplexValue(Value):
    """A complex tensor from outside (an input or a call's result) as (real, imaginary) pairs.

    Its last dimension has size two. The executor reads the complex tensor's memory as such pairs; nothing is copied.
    """


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop variable that runs over ``[0, size)``."""

    name: str
    """Name of the loop variable."""
    size: Size
    """Number of points."""
