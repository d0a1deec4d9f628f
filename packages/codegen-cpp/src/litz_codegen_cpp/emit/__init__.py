"""Emission of C++ text for the kernels of a plan: pure, deterministic, and independent of the compiler."""

from litz_codegen_cpp.emit.kernel import Emitted, emit_kernel
from litz_codegen_cpp.emit.source.ops_table import Spelling, register_spelling
from litz_codegen_cpp.emit.unit import emit_plan

__all__ = ["Emitted", "Spelling", "emit_kernel", "emit_plan", "register_spelling"]
