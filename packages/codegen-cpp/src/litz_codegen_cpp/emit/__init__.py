"""Emission of C++ text for the kernels of a plan: pure, deterministic, and independent of the compiler."""
