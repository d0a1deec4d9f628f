"""Compiled kernels, and the files that hold them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from litz_codegen_triton.runtime.modules import write_atomically
from litz_ir.errors import ToolchainError

_MAGIC = "litz cubin 1"


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel's binary and the facts that a launch needs."""

    name: str
    """Name of the kernel in the plan."""

    cubin: bytes
    """Machine code for one chip."""

    entry: str
    """Name of the entry point in ``cubin``."""

    warps: int
    """Warps of a thread block."""

    shared_bytes: int
    """Bytes of shared memory of a thread block."""

    parameters: int
    """Number of arguments of the binary: those of the source, for each of ``descriptors`` itself with its extents and
    strides, then pointers that Triton adds."""

    ptx: str = ""
    """Assembly that ``cubin`` was made from; empty where it was read from a file."""

    scratch: int = 0
    """Bytes of global scratch memory of a thread block, which the first of Triton's pointers points to; 0 for none."""

    descriptors: tuple[tuple[int, ...], ...] = ()
    """Tensor descriptors that a launch makes, arguments after those of the source. The numbers of each: the position of
    the buffer among the arguments, the driver's numbers of the element type and of the swizzle, and the rank; then, all
    from the contiguous dimension to the slowest, the extents in elements, the strides in bytes of the dimensions after
    the first, and the extents of a tile in elements."""

    def to_bytes(self) -> bytes:
        """Serialise as a line of JSON and the cubin, without the assembly."""
        head = {
            "format": _MAGIC, "name": self.name, "entry": self.entry, "warps": self.warps,
            "shared_bytes": self.shared_bytes,
            "parameters": self.parameters, "scratch": self.scratch, "descriptors": self.descriptors,
        }  # fmt: skip
        return json.dumps(head, sort_keys=True).encode() + b"\n" + self.cubin

    @staticmethod
    def from_bytes(data: bytes) -> CompiledKernel:
        """Read the result of :meth:`to_bytes`. Raises ``ToolchainError`` for other data."""
        line, found, cubin = data.partition(b"\n")
        try:
            head = json.loads(line)
            if not found or head.pop("format") != _MAGIC:
                raise ValueError("wrong format")
            made = tuple(map(tuple, head.pop("descriptors", ())))
            return CompiledKernel(cubin=cubin, descriptors=made, **head)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ToolchainError(f"not a compiled kernel: {error}", hint="build it again") from error


def write_compiled(kernel: CompiledKernel, folder: Path) -> Path:
    """Write a compiled kernel to one file in ``folder`` and return its path."""
    return write_atomically(folder / f"{kernel.name}.cubin", kernel.to_bytes())
