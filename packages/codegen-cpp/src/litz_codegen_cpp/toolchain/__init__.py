"""Compilation of source text to a shared library: instruction sets, compilers and the compiler command."""
