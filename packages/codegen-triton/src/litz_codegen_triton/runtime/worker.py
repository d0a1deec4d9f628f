"""Worker process that compiles Triton kernels: one line of JSON per request and per answer.

It does not import torch, and ends when the process that it answers closes the pipe or exits.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from litz_codegen_triton.capabilities import DEFAULT_CHIP
from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.emit.source.tensor_descriptors import descriptors_of
from litz_codegen_triton.runtime.compile import compile_source
from litz_codegen_triton.runtime.compiled_kernel import write_compiled
from litz_ir.errors import CompileFailed, ToolchainError


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Compile a request's kernel; the answer has the binary's path, or the fields of the error."""
    source = KernelSource(
        request["name"], request["text"], tuple(request["signature"]), tuple(request["divisible"]),
        request["warps"], request["asserts"], 0, contract=request["contract"],
        descriptors=descriptors_of(request["descriptors"]),
    )  # fmt: skip
    folder = Path(request["folder"])
    try:
        built = compile_source(source, request["chip"], folder, aligned=request["aligned"])
        return {"path": str(write_compiled(built, folder))}
    except CompileFailed as error:
        return {
            "message": error.message,
            "command": error.command,
            "output": error.output,
            "hint": error.hint,
        }
    except ToolchainError as error:
        return {"message": error.message, "hint": error.hint}


def _serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests in order, until there are no more."""
    for line in requests:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


def serve(requests: int, answers: int) -> None:
    """Serve the requests of a pipe, after a line with the id of this process; text that Triton prints to standard
    output goes to standard error."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with open(requests, encoding="utf-8") as lines, open(answers, "w", encoding="utf-8") as found:
        found.write(f"{os.getpid()}\n")
        found.flush()
        _serve(lines, found)


def compile_first(text: str, folder: Path) -> None:
    """Compile a kernel ``first`` of two pointers to ``f32``, which prepares the process for others."""
    compile_source(KernelSource("first", text, ("*fp32", "*fp32"), (), 4, False, 0), DEFAULT_CHIP, folder)
