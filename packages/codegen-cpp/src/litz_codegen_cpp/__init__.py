"""From plans to C++ kernels for CPUs."""

__version__ = "0.1.0"
