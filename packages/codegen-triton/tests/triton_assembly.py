"""What is asked of a compiled kernel, read off its assembly and what the assembler says: accesses of 16 bytes, no
registers that are spilled."""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import triton

from litz_codegen_triton.emit.kernel import KernelSource
from litz_codegen_triton.emit.vector_accesses import VECTOR_BYTES
from litz_codegen_triton.runtime.compile import CompiledKernel, compile_source
from litz_ir.errors import CompileFailed

_ACCESS = re.compile(r"\b(ld|st)\.global(?:\.[a-zA-Z]\w*(?:::\w+)*)*?(?:\.v(\d+))?\.[bfus](\d+)\b")
_ASYNC = re.compile(r"\bcp\.async\.c[ag]\.shared\.global\b[^;]*?\],\s*(0x[0-9a-f]+|\d+)")
_SPILLS = re.compile(r"(\d+) bytes spill stores")
_DIRECTIONS = {"ld": "load", "st": "store"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What compiling a source gave: the bytes of registers it spills, how its accesses fall short of 16 bytes, or why
    it was refused."""

    name: str
    spilled: int = 0
    narrow: str = ""
    refused: str = ""


def compiled(source: KernelSource, chip: str, folder: Path) -> Outcome:
    """Compile one source, reading the assembler's report."""
    said = io.StringIO()
    with triton.knobs.nvidia.scope(), triton.knobs.compilation.scope(), contextlib.redirect_stdout(said):
        triton.knobs.nvidia.dump_ptxas_log = True
        triton.knobs.compilation.always_compile = True
        try:
            found = compile_source(source, chip, folder)
        except CompileFailed as error:
            return Outcome(source.name, refused=error.output[-400:])
    report = _SPILLS.findall(said.getvalue())
    assert report, f"the assembler reported nothing on {source.name}"
    return Outcome(source.name, sum(map(int, report)), "; ".join(narrow_accesses(source, found)))


def narrow_accesses(source: KernelSource, built: CompiledKernel) -> Iterator[str]:
    """How the assembly falls short of the 16 bytes that a source's accesses are to have: in which direction, how many
    instructions of that width there are to be, and are. Instructions that parts of a pack have in common a compiler may
    write once: there are as many as any of them has."""
    found = widths(built.ptx)
    for direction in ("load", "store"):
        parts = Counter[str]()
        for way, buffer, count in source.vector_accesses:
            parts[buffer.rpartition(".")[0]] += count if way == direction else 0
        wanted = max(parts.values(), default=0)
        there = sum(
            count for (way, width), count in found.items() if way == direction and width >= VECTOR_BYTES
        )
        if there < wanted:
            yield f"{there} of {wanted} {direction}s have {VECTOR_BYTES} bytes"


def widths(ptx: str) -> Counter[tuple[str, int]]:
    """How many instructions access global memory, by direction and by bytes of a thread."""
    found = (match.groups() for match in _ACCESS.finditer(ptx))
    counted = Counter((_DIRECTIONS[way], int(lanes or 1) * int(bits) // 8) for way, lanes, bits in found)
    # What is copied to shared memory on its way to registers is read as widely as that copy says.
    return counted + Counter(("load", int(match.group(1), 0)) for match in _ASYNC.finditer(ptx))
