"""The invariants of a plan's kernels: their names, their devices, and their accesses to the buffers of launches."""

from __future__ import annotations

from litz_ir.loops.layout import span
from litz_ir.loops.nodes import TensorType
from litz_ir.plan.buffer_uses import kernel_devices
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Launch, Plan, plans_in
from litz_ir.plan.verify.kernel import verify_launched
from litz_ir.scalar.verify import ErrorLocation


def verify_kernels(plan: Plan) -> None:
    """Check a plan's kernels, not its subplans', on the buffers of its launches; raises VerifyError."""
    extents = launch_extents(plan)
    for kernel in plan.kernels:
        verify_launched(kernel, extents.get(kernel.name, {}))


def launch_extents(plan: Plan) -> dict[str, dict[str, int]]:
    """Elements of each parameter by kernel: the fewest that any launch gives it; without those that are not known."""
    kernels, placements = {kernel.name: kernel for kernel in plan.kernels}, dict(plan.buffers)
    found: dict[str, dict[str, int]] = {}
    for step in plan.steps:
        if not isinstance(step, Launch) or step.kernel not in kernels:
            continue
        fewest = found.setdefault(step.kernel, {})
        for parameter, buffer in zip(kernels[step.kernel].parameters, step.buffers):
            elements = _elements(placements[buffer].type) if buffer in placements else None
            if elements is not None:
                fewest[parameter.name] = min(elements, fewest.get(parameter.name, elements))
    return found


def _elements(type_: TensorType) -> int | None:
    """Elements from the start of a buffer's memory to its last one; ``None`` if unknown.

    A negative stride reaches elements before the first one, which the span does not count.
    """
    layout = type_.layout
    if any(isinstance(stride, int) and stride < 0 for stride in (*layout.strides, layout.offset)):
        return None
    if 0 in type_.shape:
        return 0
    elements = span(type_.shape, layout)
    return elements if isinstance(elements, int) else None


def check_kernel_names(plan: Plan, location: ErrorLocation) -> None:
    """Kernels of one name, here and in subplans, are equal."""
    known: dict[str, Kernel] = {}
    for kernel in (kernel for each in plans_in(plan) for kernel in each.kernels):
        if known.setdefault(kernel.name, kernel) != kernel:
            location.fail("kernel-names", f"two different kernels are called {kernel.name}")


def check_kernel_devices(plan: Plan, location: ErrorLocation) -> None:
    """A kernel is launched on devices of one kind, for which its code is generated."""
    for name, devices in kernel_devices(plan).items():
        if len({device.kind for device in devices}) > 1:
            location.fail("kernel-devices", f"{name} is launched on {' and '.join(map(str, devices))}")
