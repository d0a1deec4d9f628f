"""Code generator from litz plans to Python functions that Numba compiles."""

__version__ = "0.1.0"
