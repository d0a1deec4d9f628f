"""Compilation of source text to a shared library: instruction sets, compilers and the compiler command."""

from litz_codegen_cpp.toolchain.build import BuildOptions
from litz_codegen_cpp.toolchain.compilers import Compiler
from litz_codegen_cpp.toolchain.isa import Isa, by_name

__all__ = ["BuildOptions", "Compiler", "Isa", "by_name"]
