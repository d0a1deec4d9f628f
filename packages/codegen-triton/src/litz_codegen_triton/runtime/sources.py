"""Sources of a plan's kernels; this module imports no Triton, which this process needs only where it compiles."""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_triton.emit.kernel import emit_kernel
from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_ir.plan import KernelOrigin, Launch, Plan


def plan_sources(plan: Plan) -> tuple[KernelSource, ...]:
    """Emit a scheduled plan's kernels, with the user's lines as comments. Raises ``CodegenError``."""
    return tuple(emit_kernel(kernel, origins=_launch_origins(plan, kernel.name)) for kernel in plan.kernels)


def _launch_origins(plan: Plan, kernel: str) -> Sequence[KernelOrigin]:
    """Return the source locations of the operations that a kernel fuses, from its first launch."""
    for step in plan.steps:
        if isinstance(step, Launch) and step.kernel == kernel:
            return step.origins
    return ()
