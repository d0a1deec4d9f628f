"""Emission of kernels as Triton source text; no module here imports Triton."""

from litz_codegen_triton.emit.kernel import KernelSource, emit_kernel

__all__ = ["KernelSource", "emit_kernel"]
