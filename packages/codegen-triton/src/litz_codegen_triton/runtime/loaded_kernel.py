"""Kernels loaded on a device, and the memory of their arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from litz_ir.plan import Kernel


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel that is loaded on the device."""

    kernel: Kernel
    """The kernel as it is in the plan."""

    handle: int
    """Function handle of the driver."""

    threads: int
    """Threads of a thread block."""

    shared_bytes: int
    """Bytes of shared memory of a thread block."""

    hidden: int
    """Pointers that Triton adds after the arguments of the source."""

    cluster_size: int
    """Thread blocks of a cluster."""

    cleared: int = -1
    """Number of the argument that is a workspace to zero before the launch; -1 for none."""

    scratch: int = 0
    """Bytes of Triton's global scratch memory of a thread block, which the first hidden pointer points to."""

    @property
    def is_plain(self) -> bool:
        """True for a kernel whose thread blocks do not wait for each other."""
        return self.cluster_size == 1 and self.cleared < 0


class ArgumentArrays:
    """Argument arrays of one call.

    ``addresses`` and ``values`` hold the buffer addresses and symbol values of all kernels, ``scratch`` the scratch
    address of each. ``blocks`` is, for each kernel, the array of pointers to its arguments that the driver takes.
    """

    __slots__ = ("_null", "addresses", "blocks", "scratch", "values")

    def __init__(self, functions: Sequence[LoadedKernel]) -> None:
        buffers = [len(each.kernel.parameters) for each in functions]
        symbols = [len(each.kernel.symbols) for each in functions]
        self.addresses = (ctypes.c_uint64 * max(1, sum(buffers)))()
        self.values = (ctypes.c_uint64 * max(1, sum(symbols)))()
        self._null = ctypes.c_uint64(0)
        self.scratch = (ctypes.c_uint64 * len(functions))()
        addresses, values = ctypes.addressof(self.addresses), ctypes.addressof(self.values)
        null, scratch = ctypes.addressof(self._null), ctypes.addressof(self.scratch)
        starts = zip(accumulate([0, *buffers]), accumulate([0, *symbols]), functions, strict=False)
        self.blocks = []
        for number, (first_buffer, first_symbol, function) in enumerate(starts):
            pointers = [addresses + 8 * (first_buffer + k) for k in range(len(function.kernel.parameters))]
            pointers += [values + 8 * (first_symbol + k) for k in range(len(function.kernel.symbols))]
            pointers += [scratch + 8 * number, *[null] * function.hidden][: function.hidden]
            self.blocks.append((ctypes.c_void_p * max(1, len(pointers)))(*pointers))
