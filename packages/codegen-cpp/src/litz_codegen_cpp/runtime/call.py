"""Calls of loaded kernels from Python, by buffer addresses and symbol values."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from struct import Struct

from litz_codegen_cpp.runtime.load import LoadedLibrary
from litz_ir.errors import KernelError, OutOfMemory
from litz_ir.faults import BY_CODE, fault_error
from litz_ir.plan import Kernel
from litz_ir.target import ByteRange, LaunchFunction, MemoryPart

_SEGMENT = "litz_segment"
"""The entry point that runs several kernels."""
_UNCHANGED = "litz_unchanged"
"""The entry point that compares memory."""
OUT_OF_MEMORY = 2
"""The error code of a kernel that could not allocate its scratch."""
_POSITION = 256
"""A segment's result is the kernel's position times this, plus the kernel's error code."""


class CpuModule:
    """The kernels of a plan, loaded from one or more libraries.

    Its functions may be called from several threads at once.
    """

    def __init__(
        self,
        libraries: Mapping[str, LoadedLibrary],
        kernels: Mapping[str, Kernel],
        entry_points: Mapping[str, str],
    ) -> None:
        """``libraries`` gives the library of each kernel by name, ``entry_points`` its exported symbol."""
        self._libraries = dict(libraries)
        self._entry_points = dict(entry_points)
        self._kernels = dict(kernels)

    def address(self, kernel: str) -> int:
        """Return the address of the kernel's entry point; raises ``KeyError``.

        The entry point is ``int64_t (litz_runtime*, void**, const int64_t*)``.
        """
        return self._libraries[kernel].address(self._entry_points[kernel])

    def runtime(self, kernel: str) -> int:
        """Return the address of the runtime table with which the kernel must be called; raises ``KeyError``."""
        return ctypes.addressof(self._libraries[kernel].runtime)

    def function(self, kernel: str) -> LaunchFunction:
        """Return the launcher of a kernel; raises ``KeyError``."""
        segment = self.segment((kernel,))
        return segment.run

    def segment(
        self,
        names: Sequence[str],
        waits: Sequence[bool] | None = None,
        extents: Sequence[ByteRange | None] | None = None,
    ) -> NativeSegment:
        """Return consecutive kernels as one native call; raises ``KeyError``.

        A kernel whose ``waits`` is false may run at the same time as those before it, back to the last one that
        waits; by default all wait. Kernels on several threads run in one parallel region. Buffers may have any
        address, so ``extents`` is not used.
        """
        kernels = [self._kernels[name] for name in names]
        library = self._libraries[names[0]]
        return NativeSegment(library, [self.address(name) for name in names], kernels, waits)

    def comparison(self, parts: Sequence[MemoryPart]) -> Callable[[], bool] | None:
        """Return a function that reports whether all parts have the expected bytes; their memory must outlive it.

        ``None`` for libraries that an earlier version built.
        """
        library = next(iter(self._libraries.values()), None)
        if library is None or not library.exports(_UNCHANGED):
            return None
        # The array keeps the bytes alive. The interpreter lock is held: a call takes less than what giving it up costs.
        table = (_MemoryPart * len(parts))(
            *(
                _MemoryPart(
                    each.address, each.positions, each.expected, len(each.expected) // each.width, each.width
                )
                for each in parts
            )
        )
        prototype = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        native: Callable[..., int] = prototype(library.address(_UNCHANGED))
        runtime, count = ctypes.byref(library.runtime), len(parts)
        return lambda: native(runtime, table, count) != 0


class _MemoryPart(ctypes.Structure):
    """``litz_memory_part`` of ``litz/runtime.h``."""

    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("positions", ctypes.c_char_p),
        ("expected", ctypes.c_char_p),
        ("count", ctypes.c_int64),
        ("width", ctypes.c_int64),
    )


class _Frame:
    """Argument arrays of one call, laid out so that two flat arrays fill them all."""

    __slots__ = ("_tables", "addresses", "arguments", "values")

    def __init__(
        self, runtime: int, entries: ctypes.Array[ctypes.c_void_p], kernels: Sequence[Kernel], waits: bytes
    ) -> None:
        buffers = [len(kernel.parameters) for kernel in kernels]
        symbols = [len(kernel.symbols) for kernel in kernels]
        self.addresses = (ctypes.c_void_p * max(1, sum(buffers)))()
        self.values = (ctypes.c_int64 * max(1, sum(symbols)))()
        self._tables = (
            entries,
            self._table(ctypes.addressof(self.addresses), buffers),
            self._table(ctypes.addressof(self.values), symbols),
        )
        self.arguments = (runtime, len(kernels), *map(ctypes.addressof, self._tables), waits)

    @staticmethod
    def _table(base: int, counts: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
        starts = [0, *accumulate(counts)][: len(counts)]
        return (ctypes.c_void_p * len(counts))(*(base + 8 * start for start in starts))


class NativeSegment:
    """Consecutive kernels run by one native call. Argument arrays are reused, one set per concurrent call."""

    def __init__(
        self,
        library: LoadedLibrary,
        addresses: Sequence[int],
        kernels: Sequence[Kernel],
        waits: Sequence[bool] | None = None,
    ) -> None:
        self._library = library
        self._kernels = tuple(kernels)
        self._waits = bytes([False] + [True] * (len(kernels) - 1) if waits is None else waits)
        self._entries = (ctypes.c_void_p * len(addresses))(*addresses)
        prototype = ctypes.CFUNCTYPE(
            ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_char_p
        )
        self._native: Callable[..., int] = prototype(library.address(_SEGMENT))
        self._runtime = ctypes.addressof(library.runtime)
        kinds = [info.kind for kernel in kernels for info in kernel.symbols]
        # Signed, since an empty tensor has a null pointer in PyTorch, from which its storage offset is subtracted.
        self._addresses = Struct(f"={sum(len(kernel.parameters) for kernel in kernels)}q")
        self._symbols = Struct("=" + "".join("d" if kind == "float" else "q" for kind in kinds))
        self._counts = (self._addresses.size // 8, len(kinds))
        self._frames: list[_Frame] = []

    def __call__(
        self, buffers: Sequence[Sequence[int]], symbols: Sequence[Sequence[int | float]] = ()
    ) -> None:
        """Run on a list of addresses and a list of symbol values per kernel; raises as :meth:`run` does."""
        self.run([a for each in buffers for a in each], [s for each in symbols for s in each])

    def run(self, addresses: Sequence[int], symbols: Sequence[int | float] = ()) -> None:
        """Run on the addresses of all kernels' buffers, one after another, and likewise the symbol values.

        Raises the :class:`KernelError` that a kernel reports; later kernels do not run.
        """
        if (len(addresses), len(symbols)) != self._counts:
            raise self._miscounted(len(addresses), len(symbols))
        frame = self._frame()
        try:
            self._addresses.pack_into(frame.addresses, 0, *addresses)
            self._symbols.pack_into(frame.values, 0, *symbols)
            result = self._native(*frame.arguments)
        finally:
            self._frames.append(frame)
        if result:
            raise _error(self._kernels[result // _POSITION], result % _POSITION)

    def _frame(self) -> _Frame:
        """Return argument arrays that no other thread uses."""
        try:
            return self._frames.pop()
        except IndexError:
            return _Frame(self._runtime, self._entries, self._kernels, self._waits)

    def _miscounted(self, addresses: int, symbols: int) -> KernelError:
        """Return the error of a call with a wrong number of arguments."""
        name = self._kernels[0].name
        wanted = f"{self._counts[0]} buffers and {self._counts[1]} symbols"
        return KernelError(
            f"{name} and those after it take {wanted}, got {addresses} and {symbols}", code=-1, node=name
        )


def _error(kernel: Kernel, code: int) -> KernelError:
    """Return the error for a kernel's error code."""
    fault = BY_CODE.get(code)
    if fault is not None:
        return fault_error(fault, kernel.name)
    if code == OUT_OF_MEMORY:
        return OutOfMemory(
            f"can't allocate memory for the scratch of {kernel.name}", code=code, node=kernel.name
        )
    return KernelError(f"{kernel.name} reported error code {code}", code=code, node=kernel.name)
