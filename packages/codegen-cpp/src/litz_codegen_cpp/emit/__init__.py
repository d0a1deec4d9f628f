"""Emission of C++ text for the kernels of a plan: pure, deterministic, and independent of the compiler."""

from litz_codegen_cpp.emit.kernel import Emitted, emit_kernel
from litz_codegen_cpp.emit.unit import emit_plan

__all__ = ["Emitted", "emit_kernel", "emit_plan"]
