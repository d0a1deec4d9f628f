"""Matmuls by tensor cores: operands, descriptors and `tl.dot`."""
