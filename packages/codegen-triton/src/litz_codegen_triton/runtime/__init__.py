"""Compilation, loading, launching and interpretation of emitted Triton kernels."""

from litz_codegen_triton.runtime.compile import CompiledKernel, compile_source

__all__ = ["CompiledKernel", "compile_source"]
