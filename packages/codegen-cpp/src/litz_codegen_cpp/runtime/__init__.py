"""Loading a shared library and calling the kernels in it."""
