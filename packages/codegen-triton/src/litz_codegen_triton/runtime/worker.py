"""Worker process that compiles Triton kernels: one line of JSON per request and per answer.

It does not import torch, and ends when the process that started it closes the pipe or exits.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.runtime.compile import compile_source
from litz_codegen_triton.runtime.compiled_kernel import write_compiled
from litz_ir.errors import CompileFailed, ToolchainError


def compile_request(source: KernelSource, chip: str, folder: Path, *, aligned: bool) -> dict[str, Any]:
    """Build the request to compile a kernel into a file in ``folder``."""
    return {
        "name": source.name, "text": source.text, "signature": source.signature, "divisible": source.divisible,
        "warps": source.warps, "asserts": source.asserts, "contract": source.contract, "chip": chip,
        "folder": str(folder), "aligned": aligned,
    }  # fmt: skip


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Compile a request's kernel; the answer has the binary's path, or the fields of the error."""
    source = KernelSource(
        request["name"], request["text"], tuple(request["signature"]), tuple(request["divisible"]),
        request["warps"], request["asserts"], 0, contract=request["contract"],
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


def main() -> None:
    """Serve standard input and output; text that Triton prints to standard output goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _serve(sys.stdin, answers)
