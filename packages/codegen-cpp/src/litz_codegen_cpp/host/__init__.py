"""Compiled host programs: a plan's steps in C++, in one shared object with its kernels, for programs without Python."""

from litz_codegen_cpp.host.build import build_host, build_runtime, runtime_sources
from litz_codegen_cpp.host.program import emit_host
from litz_codegen_cpp.host.refusals import Refusal, refusals

__all__ = ["Refusal", "build_host", "build_runtime", "emit_host", "refusals", "runtime_sources"]
