"""Loading of compiled kernels, which run on the threads of the OpenMP runtime of the process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from litz_ir.errors import ToolchainError

_SYSTEM_GOMP = "libgomp.so.1"
"""The OpenMP library to load where the process has none."""
_GOMP_LIKE = ("libgomp", "libiomp5", "libomp")
_MAPS = Path("/proc/self/maps")
_ENTRY_POINTS = (
    "GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads",
)  # fmt: skip

NativeKernel = Callable[[Sequence[int], Sequence[int]], int]
"""A function of buffer addresses and symbol values that returns the kernel's error code, 0 for none."""


class RuntimeTable(ctypes.Structure):
    """``litz_runtime`` of ``litz/runtime.h``: the same fields in the same order."""

    _fields_ = (
        ("gomp_parallel", ctypes.c_void_p),
        ("thread_num", ctypes.c_void_p),
        ("num_threads_in_region", ctypes.c_void_p),
        ("max_threads", ctypes.c_void_p),
        ("barrier", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
        ("slot", ctypes.c_int64),
        ("slots", ctypes.c_int64),
        ("useful", ctypes.c_void_p),
    )


def loaded_openmp(maps: Path = _MAPS) -> Path | None:
    """Return the OpenMP library that this process has mapped, under whatever file name; None if there is none."""
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[5] for line in lines if line.count(" ") >= 5 and "/" in line}
    for prefix in _GOMP_LIKE:
        for path in sorted(paths):
            name = Path(path).name
            if name.startswith(prefix) and ".so" in name:
                return Path(path)
    return None


def open_openmp() -> ctypes.CDLL | None:
    """Return the OpenMP library of the process, else the system's, else None for serial kernels."""
    loaded = loaded_openmp()
    if loaded is not None:
        library = _open(str(loaded), os.RTLD_NOLOAD | os.RTLD_LAZY)
        if library is not None:
            return library
    return _open(_SYSTEM_GOMP, os.RTLD_LAZY)


def make_runtime(threads: int = 0, *, serial: bool = False) -> RuntimeTable:
    """Return the table that kernels are called with.

    ``threads`` is the most threads that a kernel uses; 0 follows the OpenMP runtime's setting at every call, which
    ``torch.set_num_threads`` changes. ``serial`` leaves the entry points empty.
    """
    table = RuntimeTable(threads=threads)
    library = None if serial else open_openmp()
    if library is not None:
        table.gomp_parallel = _address(library, "GOMP_parallel")
        table.thread_num = _address(library, "omp_get_thread_num")
        table.num_threads_in_region = _address(library, "omp_get_num_threads")
        table.max_threads = _address(library, "omp_get_max_threads")
        table.barrier = _address(library, "GOMP_barrier")
    return table


class LoadedLibrary:
    """A shared library of kernels, with a runtime table of the same lifetime."""

    def __init__(self, path: Path, runtime: RuntimeTable | None = None) -> None:
        """Load ``path``; raises :class:`ToolchainError` if the system's loader refuses it."""
        self.path = path
        self.runtime = runtime if runtime is not None else make_runtime()
        try:
            self._library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise ToolchainError(
                f"cannot load {path}: {error}", hint="remove the file, and it is compiled again"
            ) from error

    def address(self, name: str) -> int:
        """Return a kernel's address for native callers; raises :class:`ToolchainError` if there is none."""
        address = ctypes.cast(self._symbol(name), ctypes.c_void_p).value
        assert address is not None
        return address

    def exports(self, name: str) -> bool:
        """Return whether the library has an entry point."""
        return hasattr(self._library, name)

    def function(self, name: str) -> NativeKernel:
        """Return kernel ``name`` as a callable, which releases the interpreter lock while it runs."""
        entry = self._symbol(name)
        entry.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        entry.restype = ctypes.c_int64
        table = ctypes.byref(self.runtime)  # a reference that keeps the table alive as long as the callable
        pointers: dict[int, type[ctypes.Array[ctypes.c_void_p]]] = {}
        integers: dict[int, type[ctypes.Array[ctypes.c_int64]]] = {}

        def call(buffers: Sequence[int], symbols: Sequence[int] = ()) -> int:
            count, size = len(buffers), len(symbols)
            pointer_array = pointers.get(count) or pointers.setdefault(count, ctypes.c_void_p * count)
            integer_array = integers.get(size) or integers.setdefault(size, ctypes.c_int64 * size)
            return int(entry(table, pointer_array(*buffers), integer_array(*symbols)))

        call.__name__ = name
        return call

    def _symbol(self, name: str) -> Any:
        try:
            return self._library[name]
        except AttributeError as error:
            raise ToolchainError(f"{self.path} has no kernel {name}") from error


def _open(name: str, mode: int) -> ctypes.CDLL | None:
    """Return a library that has the entry points of OpenMP, else None."""
    try:
        library = ctypes.CDLL(name, mode=mode)
        for symbol in _ENTRY_POINTS:
            library[symbol]
    except (OSError, AttributeError):
        return None
    return library


def _address(library: ctypes.CDLL, symbol: str) -> int | None:
    return ctypes.cast(library[symbol], ctypes.c_void_p).value
