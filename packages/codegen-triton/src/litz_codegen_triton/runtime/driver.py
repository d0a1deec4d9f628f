"""The CUDA driver API: loads and launches cubins in torch's context."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from litz_codegen_triton.capabilities import NVIDIA
from litz_ir.errors import ToolchainError

INVALID_CONTEXT = 201
"""``CUDA_ERROR_INVALID_CONTEXT``, returned in a thread that has no current context."""

OUT_OF_MEMORY = 2
"""``CUDA_ERROR_OUT_OF_MEMORY``, the driver's code."""

_MAX_DYNAMIC_SHARED = 8
"""``CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES``."""

_NON_PORTABLE_CLUSTERS = 14
"""``CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED``."""

_PORTABLE_CLUSTER = 8
"""Most thread blocks of a cluster that need no such permission."""

_LAUNCH_TYPES = (ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""Arguments of ``cuLaunchKernel``: function, three grid dimensions, three block dimensions, bytes of shared memory,
stream, kernel arguments, extra options."""

_LAUNCHING = (
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuMemsetD8Async",
    "cuCtxSetCurrent",
    "cuTensorMapEncodeTiled",
)
"""Functions that the native launcher calls, in its order."""

_NOT_INTERLEAVED, _PROMOTED_TO_128_BYTES, _FILLED_WITH_ZEROS = 0, 2, 0
"""Values of ``CUtensorMapInterleave``, ``CUtensorMapL2promotion`` and ``CUtensorMapFloatOOBfill``."""

_CLUSTER_DIMENSION = 4
"""``CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION``: thread blocks of a cluster along each grid dimension."""


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute``, with its union as an array of integers."""

    _fields_: ClassVar = [("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint * 16)]


class _Configuration(ctypes.Structure):
    """``CUlaunchConfig``, the first argument of ``cuLaunchKernelEx``."""

    _fields_: ClassVar = [
        ("grid", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    ]


class Driver:
    """Functions of the driver's ``library`` for the device ``ordinal``, in its primary context, which torch uses.

    torch makes the context current in a thread with its first call of the CUDA runtime there. In a thread of the
    autograd engine, where torch's allocator may serve all memory from its cache, a launch of litz may come first.
    Methods that return an integer code return the driver's error code, 0 for success.
    """

    def __init__(self, library: Any, ordinal: int) -> None:
        self._library = library
        self._context = self._primary_context(ordinal)
        self.make_current()
        self.launch: Callable[..., int] = self._library.cuLaunchKernel
        self._library.cuLaunchKernel.argtypes = _LAUNCH_TYPES
        self._load: Callable[[ctypes.c_void_p], int] | None = getattr(library, "cuFuncLoad", None)

    def entry_points(self) -> tuple[int, ...] | None:
        """Return the addresses of the functions that launch a kernel, launch one in clusters, zero memory, make a
        context current and make a tensor descriptor, and of the context; ``None`` for a library that is no native one
        or lacks one of them."""
        if not isinstance(self._library, ctypes.CDLL):
            return None
        found: list[Any] = [getattr(self._library, name, None) for name in _LAUNCHING]
        if None in found:
            return None
        addresses = [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in found]
        return (*addresses, self._context.value or 0)

    def launch_cluster(
        self,
        function: int,
        grid_size: int,
        threads: int,
        shared_bytes: int,
        stream: int,
        arguments: Any,
        cluster_size: int,
    ) -> int:
        """Launch a kernel in clusters of ``cluster_size`` thread blocks; the error code."""
        attribute = _Attribute(_CLUSTER_DIMENSION, 0, (cluster_size, 1, 1))
        configuration = _Configuration(
            (grid_size, 1, 1), (threads, 1, 1), shared_bytes, stream, ctypes.pointer(attribute), 1
        )
        handle = ctypes.c_void_p(function)
        code: int = self._library.cuLaunchKernelEx(ctypes.byref(configuration), handle, arguments, None)
        return code

    def describe(self, target: int, address: int, words: Sequence[int]) -> int:
        """Write the tensor descriptor of a buffer at ``address`` to host memory at ``target``; the error code.

        ``words`` are those of ``CompiledKernel.descriptors`` after the first.
        """
        kind, swizzle, rank = words[:3]
        numbers = words[3:]
        extents = (ctypes.c_uint64 * rank)(*numbers[:rank])
        strides = (ctypes.c_uint64 * max(1, rank - 1))(*numbers[rank : 2 * rank - 1])
        box = (ctypes.c_uint32 * rank)(*numbers[2 * rank - 1 :])
        steps = (ctypes.c_uint32 * rank)(*[1] * rank)
        code: int = self._library.cuTensorMapEncodeTiled(
            ctypes.c_void_p(target), kind, ctypes.c_uint32(rank), ctypes.c_void_p(address),
            extents, strides, box, steps, _NOT_INTERLEAVED, swizzle, _PROMOTED_TO_128_BYTES, _FILLED_WITH_ZEROS,
        )  # fmt: skip
        return code

    def clear(self, address: int, nbytes: int, stream: int) -> int:
        """Zero device memory in stream order; the error code."""
        code: int = self._library.cuMemsetD8Async(
            ctypes.c_uint64(address), ctypes.c_ubyte(0), ctypes.c_size_t(nbytes), ctypes.c_void_p(stream)
        )
        return code

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> int:
        """Copy device memory in stream order; the error code."""
        addresses, length = (ctypes.c_uint64(target), ctypes.c_uint64(source)), ctypes.c_size_t(nbytes)
        code: int = self._library.cuMemcpyDtoDAsync_v2(*addresses, length, ctypes.c_void_p(stream))
        return code

    def make_current(self) -> None:
        """Make the context current in this thread."""
        self._library.cuCtxSetCurrent(self._context)

    def load(self, cubin: bytes, entry: str, shared_bytes: int, name: str, cluster_size: int = 1) -> int:
        """Load a binary for good and return the handle of its entry point, which may use ``shared_bytes`` and be
        launched in clusters of ``cluster_size``.

        The code is copied to the device at once if the driver has ``cuFuncLoad``; older drivers copy it at the first
        launch, which may then fail. Raises ``ToolchainError`` naming the kernel where the driver returns an error.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        library = self._library
        self._must(library.cuModuleLoadData(ctypes.byref(module), cubin), name)
        self._must(library.cuModuleGetFunction(ctypes.byref(function), module, entry.encode()), name)
        if self._load is not None:
            self._must(self._load(function), name)
        if shared_bytes > NVIDIA.static_shared_bytes:
            self._must(library.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared_bytes), name)
        if cluster_size > _PORTABLE_CLUSTER:
            self._must(library.cuFuncSetAttribute(function, _NON_PORTABLE_CLUSTERS, 1), name)
        return function.value or 0

    def describe_error(self, code: int) -> str:
        """Return the driver's message for an error code."""
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(code, ctypes.byref(text))
        return f"{(text.value or b'unknown error').decode()} ({code})"

    def _primary_context(self, ordinal: int) -> ctypes.c_void_p:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        code = (
            self._library.cuInit(0)
            or self._library.cuDeviceGet(ctypes.byref(device), ordinal)
            or self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        )
        if code:
            raise ToolchainError(f"the CUDA driver returned no context: {self.describe_error(code)}")
        return context

    def _must(self, code: int, name: str) -> None:
        if code:
            raise ToolchainError(f"the CUDA driver could not load kernel {name}: {self.describe_error(code)}")


def cuda_library() -> Any:
    """Load the CUDA driver's library. Raises ``ToolchainError`` on a machine without it."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ToolchainError(
            "no CUDA driver on this machine", hint="kernels can be compiled here, but only a GPU runs them"
        ) from error
