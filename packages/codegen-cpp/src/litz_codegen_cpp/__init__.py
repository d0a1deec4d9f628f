"""C++ kernels for CPUs: emission, compilation and loading of the kernels of a plan."""

__version__ = "0.1.0"
