"""The host program: torch's memory and routines around native kernels."""
