"""Loading of shared libraries and calls of their kernels."""

from litz_codegen_cpp.runtime.call import CpuModule

__all__ = ["CpuModule"]
