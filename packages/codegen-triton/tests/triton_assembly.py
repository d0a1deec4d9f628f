"""Checks of a compiled kernel's PTX and of the assembler's report: 16-byte accesses and register spills."""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import triton

from litz_codegen_triton.capabilities import NVIDIA
from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.runtime.compile import compile_source
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_ir.errors import CompileFailed

_ACCESS = re.compile(r"\b(ld|st)\.global(?:\.[a-zA-Z]\w*(?:::\w+)*)*?(?:\.v(\d+))?\.[bfus](\d+)\b")
_ASYNC = re.compile(r"\bcp\.async\.c[ag]\.shared\.global\b[^;]*?\],\s*(0x[0-9a-f]+|\d+)")
_SPILLS = re.compile(r"(\d+) bytes spill stores")
_DIRECTIONS = {"ld": "load", "st": "store"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of compiling a source."""

    name: str
    """The name of the kernel."""
    spilled: int = 0
    """Bytes of registers that a thread spills."""
    narrow: str = ""
    """Accesses of less than 16 bytes that should have 16, as a sentence; empty where there are none."""
    refused: str = ""
    """The end of the compiler's output, where it failed."""


def compiled(source: KernelSource, chip: str, folder: Path) -> Outcome:
    """Compile one source and return the outcome, spills from the assembler's report included."""
    output = io.StringIO()
    with triton.knobs.nvidia.scope(), triton.knobs.compilation.scope(), contextlib.redirect_stdout(output):
        triton.knobs.nvidia.dump_ptxas_log = True
        triton.knobs.compilation.always_compile = True
        try:
            found = compile_source(source, chip, folder)
        except CompileFailed as error:
            return Outcome(source.name, refused=error.output[-400:])
    report = _SPILLS.findall(output.getvalue())
    assert report, f"the assembler reported nothing on {source.name}"
    return Outcome(source.name, sum(map(int, report)), "; ".join(narrow_accesses(source, found)))


def narrow_accesses(source: KernelSource, built: CompiledKernel) -> Iterator[str]:
    """Yield a message for loads and for stores, if fewer instructions move 16 bytes than the source requires.

    The compiler may merge equal instructions of the subkernels of a foreach kernel, so that only the largest count of a
    subkernel is required.
    """
    found = widths(built.ptx)
    for direction in ("load", "store"):
        by_subkernel = Counter[str]()
        for way, buffer, count in source.vector_accesses:
            by_subkernel[buffer.rpartition(".")[0]] += count if way == direction else 0
        wanted = max(by_subkernel.values(), default=0)
        there = sum(
            count
            for (way, width), count in found.items()
            if way == direction and width >= NVIDIA.vector_bytes
        )
        if there < wanted:
            yield f"{there} of {wanted} {direction}s have {NVIDIA.vector_bytes} bytes"


def widths(ptx: str) -> Counter[tuple[str, int]]:
    """Count the instructions that access global memory, by direction and by bytes of a thread."""
    found = (match.groups() for match in _ACCESS.finditer(ptx))
    counted = Counter((_DIRECTIONS[way], int(lanes or 1) * int(bits) // 8) for way, lanes, bits in found)
    # An asynchronous copy to shared memory is a load of as many bytes.
    return counted + Counter(("load", int(match.group(1), 0)) for match in _ASYNC.finditer(ptx))
