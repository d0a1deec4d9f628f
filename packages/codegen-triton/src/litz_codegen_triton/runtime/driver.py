"""The CUDA driver: loading cubins and launching them, in the context that torch works in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, ClassVar

from litz_ir.errors import ToolchainError

INVALID_CONTEXT = 201
"""``CUDA_ERROR_INVALID_CONTEXT``: the driver's answer in a thread where nothing has made a context current."""

OUT_OF_MEMORY = 2
"""``CUDA_ERROR_OUT_OF_MEMORY``."""

_STATIC_SHARED = 48 << 10
_MAX_DYNAMIC_SHARED = 8
"""``CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES``; above the static limit a kernel has to ask for it."""

_LAUNCH_TYPES = (ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""Function; programs along three dimensions; threads along three; shared bytes; stream; arguments; nothing."""

_CLUSTER_DIMENSION = 4
"""``CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION``: how many programs along each dimension run at the same time."""


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute``, whose value is any of several things."""

    _fields_: ClassVar = [("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint * 16)]


class _Configuration(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_: ClassVar = [
        ("programs", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    ]


class Driver:
    """The functions of the driver's ``library``, for one device.

    Its context is torch's. torch makes it current in a thread with its first call to the CUDA runtime there; in a
    thread of autograd's, where memory may come from torch's cache, litz's call may be the first.
    """

    def __init__(self, library: Any, ordinal: int) -> None:
        self._library = library
        self._context = self._primary_context(ordinal)
        self.make_current()
        self.launch: Callable[..., int] = self._library.cuLaunchKernel
        self._library.cuLaunchKernel.argtypes = _LAUNCH_TYPES
        self._load: Callable[[ctypes.c_void_p], int] | None = getattr(library, "cuFuncLoad", None)

    def launch_cluster(
        self,
        function: int,
        programs: int,
        threads: int,
        shared: int,
        stream: int,
        arguments: Any,
        together: int,
    ) -> int:
        """Launch a kernel of whose programs so many consecutive ones run at the same time; the driver's code."""
        attribute = _Attribute(_CLUSTER_DIMENSION, 0, (together, 1, 1))
        configuration = _Configuration(
            (programs, 1, 1), (threads, 1, 1), shared, stream, ctypes.pointer(attribute), 1
        )
        handle = ctypes.c_void_p(function)
        code: int = self._library.cuLaunchKernelEx(ctypes.byref(configuration), handle, arguments, None)
        return code

    def clear(self, address: int, nbytes: int, stream: int) -> int:
        """Zero memory, in the order of the stream; the driver's code."""
        code: int = self._library.cuMemsetD8Async(
            ctypes.c_uint64(address), ctypes.c_ubyte(0), ctypes.c_size_t(nbytes), ctypes.c_void_p(stream)
        )
        return code

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> int:
        """Copy memory of the device, in the order of the stream; the driver's code."""
        places, length = (ctypes.c_uint64(target), ctypes.c_uint64(source)), ctypes.c_size_t(nbytes)
        code: int = self._library.cuMemcpyDtoDAsync_v2(*places, length, ctypes.c_void_p(stream))
        return code

    def make_current(self) -> None:
        """Make the context current in this thread."""
        self._library.cuCtxSetCurrent(self._context)

    def load(self, cubin: bytes, entry: str, shared: int, name: str) -> int:
        """The handle of a binary's entry point, allowed ``shared`` bytes of shared memory. It stays loaded.

        Its code is on the device then, where the driver can be asked for that: otherwise it is brought there by the
        first launch, which may fail. Raises ``ToolchainError`` naming the kernel where the driver refuses it.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        library = self._library
        self._must(library.cuModuleLoadData(ctypes.byref(module), cubin), name)
        self._must(library.cuModuleGetFunction(ctypes.byref(function), module, entry.encode()), name)
        if self._load is not None:
            self._must(self._load(function), name)
        if shared > _STATIC_SHARED:
            self._must(library.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared), name)
        return function.value or 0

    def describe_error(self, code: int) -> str:
        """An error code in the driver's words."""
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
            raise ToolchainError(f"the CUDA driver gives no context: {self.describe_error(code)}")
        return context

    def _must(self, code: int, name: str) -> None:
        if code:
            raise ToolchainError(f"the CUDA driver refused kernel {name}: {self.describe_error(code)}")


def cuda_library() -> Any:
    """The driver's library; raises ``ToolchainError`` where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ToolchainError(
            "no CUDA driver on this machine", hint="kernels can be compiled here, but only a GPU runs them"
        ) from error
