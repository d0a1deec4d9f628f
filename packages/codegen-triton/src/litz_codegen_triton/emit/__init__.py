"""Emission of kernels as Triton source text; no module here imports Triton."""
