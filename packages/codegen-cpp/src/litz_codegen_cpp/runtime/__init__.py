"""Loading of shared libraries and calls of their kernels."""
