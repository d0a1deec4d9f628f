"""From plans to Triton kernels for GPUs."""

__version__ = "0.1.0"
