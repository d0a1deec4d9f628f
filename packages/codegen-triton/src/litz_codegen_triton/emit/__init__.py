"""Emission of kernels as Triton source text; no module here imports Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litz_ir.deferred import deferred

if TYPE_CHECKING:
    from litz_codegen_triton.emit.kernel import KernelSource, emit_kernel
    from litz_codegen_triton.emit.source.ops_table import Spelling, register_spelling

__all__ = ["KernelSource", "Spelling", "emit_kernel", "register_spelling"]

__getattr__, __dir__ = deferred(
    __name__,
    {
        **dict.fromkeys(("KernelSource", "emit_kernel"), "litz_codegen_triton.emit.kernel"),
        **dict.fromkeys(("Spelling", "register_spelling"), "litz_codegen_triton.emit.source.ops_table"),
    },
)
