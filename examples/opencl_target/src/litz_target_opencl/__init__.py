"""Code generator from litz plans to OpenCL C, and the memory of OpenCL devices."""

__version__ = "0.1.0"
