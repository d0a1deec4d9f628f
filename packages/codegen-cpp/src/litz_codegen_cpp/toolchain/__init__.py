"""Compilation of source text to a shared library: instruction sets, compilers and the compiler command."""

from litz_codegen_cpp.toolchain.build import BuildOptions, compile_source
from litz_codegen_cpp.toolchain.compilers import Compiler, find_compiler
from litz_codegen_cpp.toolchain.isa import Isa, by_name, detect

__all__ = ["BuildOptions", "Compiler", "Isa", "by_name", "compile_source", "detect", "find_compiler"]
