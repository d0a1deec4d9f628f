"""The host program: torch's memory and routines around compiled kernels."""
