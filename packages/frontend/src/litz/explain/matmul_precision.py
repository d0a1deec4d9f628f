"""Precision of the f32 matmuls and convolutions of a plan, as text."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from litz.devices import is_gpu
from litz.host.runtime.precision import f32_convolution_precision, f32_matmul_precision
from litz_ir.contraction import (
    CONVOLUTIONS,
    MATMULS,
    cast_from,
    convolution_arguments,
    matmul_arguments,
    operands,
)
from litz_ir.dtypes import f32
from litz_ir.loops import Argument, Ref
from litz_ir.plan import (
    Accumulate,
    CallStep,
    Kernel,
    Launch,
    Plan,
    Step,
    kernels_in,
    launched_on,
    leaf_kernels,
    plans_in,
)
from litz_ir.scalar import Expr
from litz_scheduler import Precision


@dataclass(frozen=True, slots=True)
class _Routines:
    """A kind of routines that multiply, with torch's setting for their f32 precision."""

    called: str
    """Name of the kind in the text."""

    routines: Collection[str]
    """Names of the routines."""

    precision: Callable[[], Precision]
    """Returns the precision that torch's setting allows."""

    setting: str
    """Name of torch's setting."""


_ROUTINES = (
    _Routines("matmuls", MATMULS.keys(), f32_matmul_precision, "torch.backends.cuda.matmul.fp32_precision"),
    _Routines(
        "convolutions", CONVOLUTIONS.keys(), f32_convolution_precision,
        "torch.backends.cudnn.conv.fp32_precision",
    ),
)  # fmt: skip


def matmul_precision(plan: Plan) -> str:
    """Return lines about the f32 matmuls and convolutions on a GPU, called or generated; empty where there are none."""
    kernels = {kernel.name: kernel for kernel in kernels_in(plan)}
    steps = [(owner, step) for owner in plans_in(plan) for step in owner.steps]
    lines: list[str] = []
    for each in _ROUTINES:
        if any(_multiplies_f32(step, owner, kernels, each.routines) for owner, step in steps):
            how = "round their operands to TF32" if each.precision() == "tf32" else "multiply exactly"
            lines.append(f"f32 {each.called} {how}, as {each.setting} says")
    return "\n".join(lines)


def _multiplies_f32(step: Step, plan: Plan, kernels: dict[str, Kernel], routines: Collection[str]) -> bool:
    """Report whether a step calls or launches one of the routines with f32 operands on a GPU."""
    placements = dict(plan.buffers)
    match step:
        case CallStep() if step.target in routines:
            operand = _operand(step)
            if type(operand) is not Ref:
                return False
            type_ = placements[operand.name].type
            return type_.dtype == f32 and is_gpu(type_.device.kind)
        case Launch() if any(each.origin.operation in routines for each in step.origins):
            on_gpu = is_gpu(launched_on(step, placements).kind)
            return on_gpu and any(map(_is_of_f32, _summed(kernels[step.kernel])))
    return False


def _operand(step: CallStep) -> Argument:
    """Return the first operand of a call of a matmul or convolution."""
    if step.target in MATMULS:
        return matmul_arguments(step.target, step.arguments, step.attributes).get("a")
    given = convolution_arguments(step.target, step.arguments, step.attributes)
    return None if given is None else given.input


def _summed(kernel: Kernel) -> list[Expr]:
    """Return the values that a kernel accumulates."""
    statements = (each for own in leaf_kernels(kernel) for phase in own.phases for each in phase.statements)
    return [value for each in statements if isinstance(each, Accumulate) for value in each.values]


def _is_of_f32(value: Expr) -> bool:
    """Report whether a value multiplies two operands of which one at least is no widened fp8, int8, bf16 or f16
    value."""
    found = operands(value)
    if found is None or value.dtype != f32:
        return False
    sources = [dtype for each in found if (dtype := cast_from(each)) is not None]
    return sum(dtype.is_low_precision or dtype.bits == 8 for dtype in sources) < len(found)
