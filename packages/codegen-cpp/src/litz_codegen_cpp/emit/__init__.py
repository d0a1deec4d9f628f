"""Emission of C++ text for the kernels of a plan: pure, deterministic, and independent of the compiler.

What emits is imported when it is first used: a program whose libraries are in a file or in the cache does not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litz_ir.deferred import deferred

if TYPE_CHECKING:
    from litz_codegen_cpp.emit.kernel import Emitted, emit_kernel
    from litz_codegen_cpp.emit.source.ops_table import Spelling, register_spelling
    from litz_codegen_cpp.emit.unit import emit_plan

__all__ = ["Emitted", "Spelling", "emit_kernel", "emit_plan", "register_spelling"]

__getattr__, __dir__ = deferred(
    __name__,
    {
        **dict.fromkeys(("Emitted", "emit_kernel"), "litz_codegen_cpp.emit.kernel"),
        **dict.fromkeys(("Spelling", "register_spelling"), "litz_codegen_cpp.emit.source.ops_table"),
        "emit_plan": "litz_codegen_cpp.emit.unit",
    },
)
