"""Recognition of the kernels that multiply tiles by ``tl.dot``: matmuls and fused attention.

Scheduling and emission both need the roles of operands and axes. Both take them from here, so that they agree.
"""

from __future__ import annotations

from litz_codegen_triton.emit.loops.attention_scores import score_kernel
from litz_codegen_triton.emit.loops.contraction import Contraction, contraction
from litz_codegen_triton.emit.loops.fused_attention import FusedAttention, fused_attention
from litz_ir.errors import CodegenError
from litz_ir.plan import Attention, Kernel, Matmul
from litz_ir.symbols import SymbolTable

DotKernel = Contraction | FusedAttention
"""The roles of the operands and axes of a kernel that multiplies tiles."""


def dot_kernel(kernel: Kernel) -> DotKernel | None:
    """Return the roles in a kernel that can multiply tiles, as fused attention where it is that; else ``None``."""
    known = SymbolTable(kernel.symbols)
    return fused_attention(kernel, known) or score_kernel(kernel, known) or contraction(kernel, known)


def scheduled_roles(kernel: Kernel) -> DotKernel | None:
    """Return the roles in a kernel that is scheduled as a matmul or as attention; ``None`` for other schedules.

    Raises ``CodegenError`` for a kernel that is not what its schedule says.
    """
    schedule = kernel.schedule
    if not isinstance(schedule, Matmul | Attention):
        return None
    found = dot_kernel(kernel)
    if isinstance(schedule, Matmul) and not isinstance(found, Contraction):
        raise CodegenError(f"kernel {kernel.name} is scheduled as a matmul, which it is not")
    if isinstance(schedule, Attention) and not isinstance(found, FusedAttention):
        raise CodegenError(f"kernel {kernel.name} is scheduled as attention, which it is not")
    return found
