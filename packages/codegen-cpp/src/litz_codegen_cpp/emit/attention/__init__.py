"""Attention: its recognition among kernels, and its loops in C++."""
