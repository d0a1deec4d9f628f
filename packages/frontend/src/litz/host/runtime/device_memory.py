"""Memory of a device as torch's tensors, for litz's executor and the conformance suites."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
import torch

from litz.host.runtime.torch_memory import copied
from litz_ir.device import Device
from litz_ir.dtypes import ALL, DType
from litz_ir.errors import DTypeError, GraphError, TargetError
from litz_ir.interp import storage_dtype
from litz_ir.target import BufferArgument

_DTYPES = MappingProxyType({dtype: getattr(torch, dtype.torch_name) for dtype in ALL})
"""torch's dtype of each dtype."""

_BITS = MappingProxyType({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64})
"""Dtypes that NumPy and torch share, by size in bytes: elements cross between them as bits."""


class TorchMemory:
    """Tensors on the current device of a kind, allocated and copied by torch; implements :class:`litz_ir.host.Memory`.

    Kernels are launched on the addresses of its tensors.
    """

    def __init__(self, kind: str) -> None:
        self._device = torch.device(kind)

    def empty(self, nbytes: int, device: Device) -> torch.Tensor:
        """Return a tensor of bytes."""
        return torch.empty(nbytes, dtype=torch.uint8, device=self._device)

    def view(
        self, storage: torch.Tensor, dtype: DType, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> torch.Tensor:
        """Return a tensor over the same storage."""
        start = storage.storage_offset() * storage.itemsize + offset
        made = torch.empty(0, dtype=_DTYPES[dtype], device=self._device)
        return made.set_(storage.untyped_storage(), start // dtype.itemsize, tuple(shape), tuple(strides))

    def address(self, tensor: torch.Tensor) -> int:
        """Return the address that torch gives for the first element."""
        return tensor.data_ptr()

    def buffer(self, tensor: torch.Tensor, start: int, nbytes: int) -> BufferArgument:
        """Raise :class:`TargetError`: host programs launch kernels on addresses."""
        raise TargetError(
            "kernels of a device that torch allocates on are launched on addresses, not on buffers",
            hint="return a LaunchFunction from KernelModule.function",
        )

    def geometry(self, tensor: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return shape and strides; raise :class:`GraphError` for anything but a tensor of the kind."""
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != self._device.type:
            found = tensor.device if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise GraphError(f"expected a tensor on {self._device.type}, got {found}", stage="inputs")
        return tuple(tensor.shape), tensor.stride()

    def dtypes(self, tensor: torch.Tensor) -> frozenset[DType]:
        """Return the dtype of the elements."""
        return frozenset(dtype for dtype, known in _DTYPES.items() if known == tensor.dtype)

    def read(self, tensor: torch.Tensor, dtype: DType) -> np.ndarray:
        """Return a copy on the host; raise :class:`DTypeError` for elements of another dtype."""
        if tensor.dtype != _DTYPES[dtype]:
            raise DTypeError(f"a tensor of {tensor.dtype} is read as {dtype}", hint="view it as that dtype")
        bits = tensor.to("cpu").view(_BITS[dtype.itemsize]).numpy()
        return bits.view(storage_dtype(dtype))

    def write(self, tensor: torch.Tensor, array: np.ndarray) -> None:
        """Overwrite the elements by a copy from the host."""
        bits = _BITS[tensor.itemsize]
        # A copy is contiguous, and may be written to, which torch asks of arrays.
        dense = np.array(array, order="C").view(np.dtype(str(bits).removeprefix("torch.")))
        tensor.view(bits).copy_(torch.from_numpy(dense))

    def stack(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return a new tensor."""
        return torch.stack(list(tensors))

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy with the same strides."""
        return copied(tensor)
