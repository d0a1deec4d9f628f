"""Memory of a plan's tensors: the protocol that the executor uses, and its NumPy implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from litz_ir.device import STORAGE_ALIGNMENT, Device
from litz_ir.dtypes import DType, u8
from litz_ir.errors import GraphError
from litz_ir.host.launch import BufferArgument
from litz_ir.interp.bind import numpy_geometry
from litz_ir.interp.encoding import Array, storage_dtype, stored_dtypes


class Memory(Protocol):
    """Creates storages and tensors, in a representation of its own."""

    def empty(self, nbytes: int, device: Device) -> Any:
        """A new storage of ``nbytes`` bytes, aligned to :data:`STORAGE_ALIGNMENT`, with undefined contents."""

    def view(
        self, storage: Any, dtype: DType, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> Any:
        """A tensor over the memory of ``storage``, a result of :meth:`empty` or a tensor.

        ``strides`` are in elements; ``offset`` is in bytes from the first element of the storage or tensor to that of
        the new tensor, and may be negative.
        """

    def address(self, tensor: Any) -> int:
        """The address of a tensor's first element."""

    def buffer(self, tensor: Any, start: int, nbytes: int) -> BufferArgument:
        """``nbytes`` bytes of the memory of a tensor, from ``start`` bytes after its first element (or before it)."""

    def geometry(self, tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides of a tensor, in elements."""

    def dtypes(self, tensor: Any) -> frozenset[DType]:
        """The dtypes that a tensor's elements may have: several if the representation does not tell them apart."""

    def read(self, tensor: Any, dtype: DType) -> Array:
        """The elements as a NumPy array in memory form, which shares memory if possible."""

    def write(self, tensor: Any, array: Array) -> None:
        """Overwrite the elements; does nothing if ``array`` is the tensor's own memory."""

    def stack(self, tensors: Sequence[Any]) -> Any:
        """Tensors of one shape, stacked along a new first dimension."""

    def copy(self, tensor: Any) -> Any:
        """A tensor of the same elements and strides in new memory."""


class NumpyMemory:
    """Tensors as NumPy arrays in memory form, for any device.

    ``fill`` is the value of each byte of a new storage, so that reads of unwritten memory are repeatable.
    """

    def __init__(self, fill: int | None = None) -> None:
        self._fill = fill

    def empty(self, nbytes: int, device: Device) -> Array:
        """A new ``uint8`` array."""
        block = np.empty(nbytes + STORAGE_ALIGNMENT, np.uint8)
        start = -self.address(block) % STORAGE_ALIGNMENT
        storage = block[start : start + nbytes]
        if self._fill is not None:
            storage[...] = self._fill
        return storage

    def view(
        self, storage: Any, dtype: DType, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> Array:
        """An array over the same memory, which it keeps alive."""
        return np.asarray(_Span(storage, dtype, tuple(shape), tuple(strides), offset))

    def address(self, tensor: Any) -> int:
        """The address of an array's first element."""
        address: int = tensor.__array_interface__["data"][0]
        return address

    def buffer(self, tensor: Any, start: int, nbytes: int) -> BufferArgument:
        """An array of these bytes, which keeps the memory alive."""
        return BufferArgument(np.asarray(_Span(tensor, u8, (nbytes,), (1,), start)), 0, nbytes)

    def geometry(self, tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides, in elements; raises :class:`GraphError` unless ``tensor`` is an array."""
        if not isinstance(tensor, np.ndarray):
            raise GraphError(f"expected a NumPy array, got {type(tensor).__name__}", stage="inputs")
        return numpy_geometry(tensor)

    def dtypes(self, tensor: Any) -> frozenset[DType]:
        """The dtypes that are stored as such an array: for ``uint16`` ``u16`` and ``bf16``, for ``int16`` ``i16``."""
        return stored_dtypes(tensor.dtype)

    def read(self, tensor: Any, dtype: DType) -> Array:
        """The array itself."""
        return np.asarray(tensor)

    def write(self, tensor: Any, array: Array) -> None:
        """Copy the elements, unless ``array`` is the tensor."""
        if tensor is not array:
            np.copyto(tensor, array)

    def stack(self, tensors: Sequence[Any]) -> Array:
        """A new array."""
        return np.stack(tensors)

    def copy(self, tensor: Any) -> Array:
        """A new array, whose dimensions have the same order of strides."""
        return np.copy(tensor, order="K")


class _Span:
    """An array interface over memory: NumPy keeps this object alive, and it keeps the memory's owner alive."""

    def __init__(
        self, owner: Array, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> None:
        self.owner = owner
        address, read_only = owner.__array_interface__["data"]
        stored = storage_dtype(dtype)
        self.__array_interface__ = {
            "version": 3,
            "typestr": stored.str,
            "shape": shape,
            "strides": tuple(stride * stored.itemsize for stride in strides),
            "data": (address + offset, read_only),
        }
