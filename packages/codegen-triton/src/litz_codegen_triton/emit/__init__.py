"""Kernels as Triton source text. Nothing in here imports Triton: it writes."""
