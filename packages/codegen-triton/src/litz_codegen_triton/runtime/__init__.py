"""Compilation, loading, launching and interpretation of emitted Triton kernels."""
