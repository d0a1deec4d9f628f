"""Emission of kernels as Triton source text; no module here imports Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litz_ir.deferred import deferred

if TYPE_CHECKING:
    from litz_codegen_triton.emit.kernel import emit_kernel
    from litz_codegen_triton.emit.kernel_source import KernelSource
    from litz_codegen_triton.emit.source.ops_table import Spelling, register_spelling

__all__ = ["KernelSource", "Spelling", "emit_kernel", "register_spelling"]

__getattr__, __dir__ = deferred(
    __name__,
    {
        "KernelSource": "litz_codegen_triton.emit.kernel_source",
        "emit_kernel": "litz_codegen_triton.emit.kernel",
        **dict.fromkeys(("Spelling", "register_spelling"), "litz_codegen_triton.emit.source.ops_table"),
    },
)
