"""Autotuning: candidate configs of kernels, timed on the device during calls of their graph."""
