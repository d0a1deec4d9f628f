"""Aligned copies of unaligned buffers, for a kernel whose only binary needs alignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from litz_codegen_triton.capabilities import NVIDIA
from litz_ir.errors import KernelError
from litz_ir.plan import Kernel, Store, access_ranges, leaf_kernels
from litz_ir.scalar import Masked, loads, walk
from litz_ir.symbols import evaluate
from litz_ir.target import ByteRange

ALIGNED = NVIDIA.vector_bytes - 1
"""Bits of an address that are zero if it is a multiple of 16."""

Copy = Callable[[int, int, int], None]
"""Copies device memory in stream order: target address, source address, bytes."""


class AlignedCopies:
    """Copies of the unaligned buffers of one launch, each at a multiple of 16 bytes.

    ``addresses`` and ``extents`` are those of the kernel's buffers, ``symbols`` its symbol values by name. Buffers with
    one address share a copy, so that a kernel that updates a buffer in place does so in the copy too. ``memory``
    allocates a number of bytes, which live as long as this object. Raises ``KernelError`` where the length of an
    unaligned buffer is unknown.
    """

    def __init__(
        self,
        kernel: Kernel,
        addresses: Sequence[int],
        extents: Sequence[ByteRange | None],
        symbols: Mapping[str, int | float],
        memory: Callable[[int], Any],
        copy: Copy,
    ) -> None:
        self._copy = copy
        self._ends: dict[int, tuple[int, int]] = {}
        self._written: set[int] = set()
        given = zip(kernel.parameters, addresses, extents, strict=True)
        for parameter, address, extent in given:
            if address & ALIGNED:
                low, high = _ends(kernel, parameter.name, extent, symbols)
                known = self._ends.get(address, (low, high))
                self._ends[address] = min(known[0], low), max(known[1], high)
                self._written |= {address} if parameter.access != "in" else set()
        self._copies: dict[int, int] = {}
        self._memory = []
        for address, (low, high) in self._ends.items():
            start = low & ~ALIGNED
            self._memory.append(memory(max(1, high - start)))
            self._copies[address] = self._memory[-1].data_ptr() - start
        self.addresses = [self._copies.get(each, each) for each in addresses]

    def fill(self) -> None:
        """Copy the buffers to their aligned copies, before the launch."""
        for address, (low, high) in self._ends.items():
            if low < high:
                self._copy(self._copies[address] + low, address + low, high - low)

    def write_back(self) -> None:
        """Copy back the buffers that the launch may have written."""
        for address, (low, high) in self._ends.items():
            if low < high and address in self._written:
                self._copy(address + low, self._copies[address] + low, high - low)


def _ends(
    kernel: Kernel, name: str, extent: ByteRange | None, symbols: Mapping[str, int | float]
) -> tuple[int, int]:
    """Return the range that a kernel may access, in bytes from a buffer's address. Raises ``KernelError``."""
    if extent is not None:
        sizes = {each: int(value) for each, value in symbols.items() if not isinstance(value, float)}
        low, high = (evaluate(end, sizes) for end in extent)
        return low, high
    touched = access_ranges(kernel, symbols)[name]
    if touched.low is None or touched.high is None or _reads_under_conditions(kernel):
        text = f"kernel {kernel.name} got a buffer of unknown length whose address is no multiple of 16 bytes"
        raise KernelError(text, code=-1, node=kernel.name)
    itemsize = kernel.parameter(name).dtype.itemsize
    return touched.low * itemsize, (touched.high + 1) * itemsize


def _reads_under_conditions(kernel: Kernel) -> bool:
    """True where a kernel has masked loads, so that it may access less than the ranges of its indices."""
    statements = [each for own in leaf_kernels(kernel) for phase in own.phases for each in phase.statements]
    values = [v for each in statements for v in ((each.value,) if isinstance(each, Store) else each.values)]
    return any(isinstance(node, Masked) and loads(node.body) for node in walk(*values))
