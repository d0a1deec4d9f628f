"""Compilation, loading, launching and interpretation of emitted Triton kernels.

What compiles is imported when it is first used: a program whose cubins are in a file or in the cache loads neither
Triton nor the emission of kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_ir.deferred import deferred

if TYPE_CHECKING:
    from litz_codegen_triton.runtime.compile import compile_source
    from litz_codegen_triton.runtime.sources import plan_sources
    from litz_codegen_triton.runtime.workers import shared_pool

__all__ = ["CompiledKernel", "compile_source", "plan_sources", "shared_pool"]

__getattr__, __dir__ = deferred(
    __name__,
    {
        "compile_source": "litz_codegen_triton.runtime.compile",
        "plan_sources": "litz_codegen_triton.runtime.sources",
        "shared_pool": "litz_codegen_triton.runtime.workers",
    },
)
