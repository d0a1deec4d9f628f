"""Memory of an OpenCL device, for litz's executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from litz_ir.device import Device
from litz_ir.dtypes import DType, u8
from litz_ir.errors import DTypeError, GraphError, OutOfMemory, TargetError
from litz_ir.interp import storage_dtype
from litz_ir.target import BufferArgument

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class ClTensor:
    """A tensor in a buffer of the device."""

    buffer: cl.Buffer
    """Buffer that has the elements."""
    offset: int
    """Bytes from the start of the buffer to the first element."""
    dtype: DType
    """Dtype of the elements."""
    shape: tuple[int, ...]
    """Sizes."""
    strides: tuple[int, ...]
    """Strides in elements; none is negative."""

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the end of the last one."""
        if 0 in self.shape:
            return 0
        steps = ((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (1 + sum(steps)) * self.dtype.itemsize

    @property
    def dense(self) -> bool:
        """True if there are no gaps between the elements."""
        expected = 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def over(self, block: Array) -> Array:
        """Return the tensor as an array over ``block``, a copy of its bytes."""
        steps = [stride * self.dtype.itemsize for stride in self.strides]
        return np.ndarray(self.shape, storage_dtype(self.dtype), block, 0, steps)


class ClMemory:
    """Tensors as :class:`ClTensor`, over buffers of the context of ``queue``; implements
    :class:`litz_ir.host.Memory`.

    Arrays of the host are copied to the device by :meth:`put` and :meth:`write` alone, and back by
    :meth:`read`. Raises :class:`OutOfMemory` for a buffer that the device cannot have.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        """Keep the queue, which is that of the target whose kernels run on the tensors."""
        self.queue = queue

    def put(self, array: Array, dtype: DType) -> ClTensor:
        """Return a row-major copy on the device; raises :class:`DTypeError` unless ``dtype`` is stored as
        such an array."""
        if array.dtype != storage_dtype(dtype):
            raise DTypeError(
                f"{dtype} is stored as a {storage_dtype(dtype)} array, got {array.dtype}",
                hint="convert the array before it is put on the device",
            )
        dense = np.require(array, requirements="C")
        strides = tuple(step // dtype.itemsize for step in dense.strides)
        tensor = ClTensor(self._allocate(dense.nbytes), 0, dtype, dense.shape, strides)
        self.write(tensor, dense)
        return tensor

    def _allocate(self, nbytes: int) -> cl.Buffer:
        try:
            # No buffer may be empty.
            return cl.Buffer(self.queue.context, cl.mem_flags.READ_WRITE, max(nbytes, 1))
        except cl.Error as error:
            raise OutOfMemory(
                f"{self.queue.device.name} has no buffer of {nbytes} bytes: {error}",
                code=error.code,
                hint="run smaller batches",
            ) from error

    def _fetch(self, tensor: ClTensor) -> Array:
        """Return a copy of a tensor's bytes, gaps included."""
        block = np.empty(tensor.nbytes, np.uint8)
        if block.size:
            cl.enqueue_copy(self.queue, block, tensor.buffer, src_offset=tensor.offset)
        return block

    def empty(self, nbytes: int, device: Device) -> ClTensor:
        """Return a buffer as a tensor of bytes; OpenCL aligns it for all of its types, by 128 bytes."""
        return ClTensor(self._allocate(nbytes), 0, u8, (nbytes,), (1,))

    def view(
        self, storage: ClTensor, dtype: DType, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> ClTensor:
        """Return a tensor over the same buffer."""
        return ClTensor(storage.buffer, storage.offset + offset, dtype, tuple(shape), tuple(strides))

    def address(self, tensor: ClTensor) -> int:
        """Raise :class:`TargetError`: kernels take buffers."""
        raise TargetError(
            "OpenCL memory has no addresses",
            hint="launch kernels that take buffers, such as those of OpenClTarget",
        )

    def buffer(self, tensor: ClTensor, start: int, nbytes: int) -> BufferArgument:
        """Return the bytes as a part of the tensor's buffer."""
        return BufferArgument(tensor.buffer, tensor.offset + start, nbytes)

    def geometry(self, tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return shape and strides; raises :class:`GraphError` for anything but a tensor of the device."""
        if not isinstance(tensor, ClTensor):
            raise GraphError(
                f"expected a tensor of the OpenCL device, got {type(tensor).__name__}",
                stage="inputs",
                hint="copy arrays to the device by ClMemory.put",
            )
        return tensor.shape, tensor.strides

    def dtypes(self, tensor: ClTensor) -> frozenset[DType]:
        """Return the dtype of the elements."""
        return frozenset({tensor.dtype})

    def read(self, tensor: ClTensor, dtype: DType) -> Array:
        """Return a copy on the host, once the kernels that were launched before have ended; raises
        :class:`DTypeError` if the elements are of another dtype."""
        if tensor.dtype != dtype:
            raise DTypeError(f"a tensor of {tensor.dtype} is read as {dtype}", hint="view it as that dtype")
        return tensor.over(self._fetch(tensor))

    def write(self, tensor: ClTensor, array: Array) -> None:
        """Overwrite the elements, and nothing between them."""
        block = np.empty(tensor.nbytes, np.uint8) if tensor.dense else self._fetch(tensor)
        np.copyto(tensor.over(block), array)
        if block.size:
            cl.enqueue_copy(self.queue, tensor.buffer, block, dst_offset=tensor.offset)

    def stack(self, tensors: Sequence[ClTensor]) -> ClTensor:
        """Return a new tensor, by way of the host."""
        dtype = tensors[0].dtype
        return self.put(np.stack([self.read(tensor, dtype) for tensor in tensors]), dtype)

    def copy(self, tensor: ClTensor) -> ClTensor:
        """Return a tensor in a buffer of its own."""
        copied = ClTensor(self._allocate(tensor.nbytes), 0, tensor.dtype, tensor.shape, tensor.strides)
        self.write(copied, self.read(tensor, tensor.dtype))
        return copied
