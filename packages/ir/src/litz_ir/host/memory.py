"""Where a plan's tensors live, as the executor sees it, and that in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.errors import GraphError
from litz_ir.interp.bind import numpy_geometry
from litz_ir.interp.encoding import Array, storage_dtype

ALIGNMENT = 64
"""Fresh storages start at a multiple of this many bytes."""


class Memory(Protocol):
    """Makes storages and tensors; what they are is its own affair."""

    def empty(self, nbytes: int, device: Device) -> Any:
        """A fresh storage of ``nbytes`` bytes, aligned to :data:`ALIGNMENT`; its content is undefined."""

    def view(
        self, storage: Any, dtype: DType, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> Any:
        """A tensor over the memory of ``storage``: what :meth:`empty` gave, or a tensor.

        ``strides`` count elements; ``offset`` counts bytes from the storage's (or tensor's) first element to the new
        one's and may be negative.
        """

    def address(self, tensor: Any) -> int:
        """The address of a tensor's first element."""

    def geometry(self, tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides, in elements."""

    def read(self, tensor: Any, dtype: DType) -> Array:
        """The elements as a NumPy array in memory form, sharing memory where that is possible."""

    def write(self, tensor: Any, array: Array) -> None:
        """Overwrite the elements; nothing happens where ``array`` is the tensor's own memory."""

    def stack(self, tensors: Sequence[Any]) -> Any:
        """Equally shaped tensors along a new first dimension."""

    def copy(self, tensor: Any) -> Any:
        """A tensor of the same elements and strides in memory of its own."""


class NumpyMemory:
    """Tensors are NumPy arrays in memory form, whatever device they are said to be on.

    ``fill`` gives fresh storages a known content, byte by byte, so that a read of what nobody wrote is repeatable.
    """

    def __init__(self, fill: int | None = None) -> None:
        self._fill = fill

    def empty(self, nbytes: int, device: Device) -> Array:
        """A ``uint8`` array."""
        block = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -self.address(block) % ALIGNMENT
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

    def geometry(self, tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides, in elements; raises :class:`GraphError` for what is no array."""
        if not isinstance(tensor, np.ndarray):
            raise GraphError(f"expected a NumPy array, got {type(tensor).__name__}", stage="inputs")
        return numpy_geometry(tensor)

    def read(self, tensor: Any, dtype: DType) -> Array:
        """The array itself."""
        return np.asarray(tensor)

    def write(self, tensor: Any, array: Array) -> None:
        """Copy, unless ``array`` is the tensor."""
        if tensor is not array:
            np.copyto(tensor, array)

    def stack(self, tensors: Sequence[Any]) -> Array:
        """A fresh array."""
        return np.stack(tensors)

    def copy(self, tensor: Any) -> Array:
        """A fresh array, dimensions in the same order of strides."""
        return np.copy(tensor, order="K")


class _Span:
    """An array to be: NumPy reads ``__array_interface__`` and keeps this object, which keeps the memory's owner."""

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
