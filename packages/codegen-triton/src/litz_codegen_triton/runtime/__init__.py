"""Triton source text to binaries and callables."""
