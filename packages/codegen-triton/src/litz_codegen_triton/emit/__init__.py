"""Emission of kernels as Triton source text; no module here imports Triton."""

from litz_codegen_triton.emit.kernel import KernelSource, emit_kernel
from litz_codegen_triton.emit.source.ops_table import Spelling, register_spelling

__all__ = ["KernelSource", "Spelling", "emit_kernel", "register_spelling"]
