"""Buffers by name and type, and the axes that loops run over."""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.device import CPU, Device
from litz_ir.dtypes import DType
from litz_ir.loops.layout import Layout, contiguous
from litz_ir.symbols.term import Size


@dataclass(frozen=True, slots=True)
class TensorType:
    """dtype, logical shape, memory layout and device of a buffer."""

    dtype: DType
    shape: tuple[Size, ...]
    layout: Layout
    device: Device = CPU


def tensor_type(dtype: DType, *shape: Size, device: Device = CPU) -> TensorType:
    """A contiguous type, its layout free to change."""
    return TensorType(dtype, shape, contiguous(shape), device)


@dataclass(frozen=True, slots=True)
class Value:
    """A named buffer. ``replaces`` is set on a new version: the name of the version that it overwrites in place."""

    name: str
    type: TensorType
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class ComplexValue(Value):
    """Pairs (real, imaginary) on a last dimension of two that come from outside as a complex tensor: an input, or the
    result of a call. Whoever runs the graph reads the complex tensor's memory as such pairs; nothing is copied."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop variable and its extent: it runs over ``[0, size)``."""

    name: str
    size: Size
