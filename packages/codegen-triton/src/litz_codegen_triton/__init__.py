"""Triton kernels for GPUs: schedule, emit, compile and launch the kernels of a plan."""

__version__ = "0.1.0"
