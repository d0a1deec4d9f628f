"""Kernels loaded on a device, and the memory of their arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from litz_codegen_triton.runtime.driver import INVALID_CONTEXT, Driver
from litz_ir.plan import Kernel

_MAP_BYTES = 128
"""Bytes of ``CUtensorMap``."""

_MAP_ALIGNMENT = 64
"""Alignment of ``CUtensorMap``."""

_RANK = 3
"""The number of the rank among the words of a descriptor."""


def described_words(descriptors: Sequence[tuple[int, ...]]) -> int:
    """Return the arguments of a binary for tensor descriptors: each, and its extents and strides."""
    return sum(1 + 2 * each[_RANK] for each in descriptors)


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

    descriptors: tuple[tuple[int, ...], ...] = ()
    """Tensor descriptors that a launch makes, as ``CompiledKernel`` has them."""

    @property
    def is_plain(self) -> bool:
        """True for a kernel whose thread blocks do not wait for each other."""
        return self.cluster_size == 1 and self.cleared < 0


class DescriptorMemory:
    """The tensor descriptors of one kernel in an argument array; ``first`` is the number of its first buffer."""

    __slots__ = ("_memory", "addresses", "descriptors", "first", "maps")

    def __init__(self, descriptors: tuple[tuple[int, ...], ...], first: int) -> None:
        self.descriptors, self.first = descriptors, first
        self.addresses = [-1] * len(descriptors)
        self._memory = ctypes.create_string_buffer(_MAP_BYTES * len(descriptors) + _MAP_ALIGNMENT)
        start = -(-ctypes.addressof(self._memory) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
        self.maps = [start + _MAP_BYTES * number for number in range(len(descriptors))]

    def make(self, addresses: Sequence[int], driver: Driver) -> int:
        """Make the descriptors whose buffers are at other addresses than in the last call; the error code."""
        for number, (each, target) in enumerate(zip(self.descriptors, self.maps, strict=True)):
            address = addresses[self.first + each[0]]
            if address != self.addresses[number]:
                code = driver.describe(target, address, each[1:])
                if code == INVALID_CONTEXT:
                    driver.make_current()
                    code = driver.describe(target, address, each[1:])
                if code:
                    return code
                self.addresses[number] = address
        return 0


class ArgumentArrays:
    """Argument arrays of one call.

    ``addresses`` and ``values`` hold the buffer addresses and symbol values of all kernels, ``scratch`` the scratch
    address of each, ``maps`` the tensor descriptors of those kernels that have some. ``blocks`` is, for each kernel,
    the array of pointers to its arguments that the driver takes.
    """

    __slots__ = ("_null", "addresses", "blocks", "maps", "scratch", "values")

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
        self.maps: dict[int, DescriptorMemory] = {}
        for number, (first_buffer, first_symbol, function) in enumerate(starts):
            pointers = [addresses + 8 * (first_buffer + k) for k in range(len(function.kernel.parameters))]
            pointers += [values + 8 * (first_symbol + k) for k in range(len(function.kernel.symbols))]
            if function.descriptors:
                own = DescriptorMemory(function.descriptors, first_buffer)
                self.maps[number] = own
                for each, at in zip(function.descriptors, own.maps, strict=True):
                    # Triton adds extents and strides, which kernels that load through descriptors do not read.
                    pointers += [at, *[null] * (2 * each[_RANK])]
            pointers += [scratch + 8 * number, *[null] * function.hidden][: function.hidden]
            self.blocks.append((ctypes.c_void_p * max(1, len(pointers)))(*pointers))
