"""Triton functions of litz, as text; a kernel's module starts with those that the kernel calls."""
