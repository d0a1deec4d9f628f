"""Compiled host programs: a plan's steps in C++, in one shared object with its kernels, for programs without Python."""

from litz_codegen_cpp.host.program import emit_host
from litz_codegen_cpp.host.refusals import Refusal, refusals
from litz_codegen_cpp.host.runtime import build_runtime, include_paths, runtime_sources

__all__ = ["Refusal", "build_runtime", "emit_host", "include_paths", "refusals", "runtime_sources"]
