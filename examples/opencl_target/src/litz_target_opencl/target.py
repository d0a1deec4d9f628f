"""Target of litz that emits OpenCL C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyopencl as cl

from litz_ir.device import Device
from litz_ir.errors import ToolchainError
from litz_ir.plan import Kernel, Plan
from litz_ir.target import Capabilities, DeviceModel, SourceUnit
from litz_target_opencl.build import FLAGS, OpenClModule, compile_source
from litz_target_opencl.device import check_queue, open_queue
from litz_target_opencl.emit import emit_plan
from litz_target_opencl.ops_table import TYPES

CAPABILITIES = Capabilities(
    name="opencl12",
    device=Device("opencl"),
    model=DeviceModel(threads=16, memory_rate=10e9, flop_rate=10e9, launch_seconds=50e-6),
    scratch_bytes=16 << 10,  # they are private memory of a work item
    dtypes=frozenset(TYPES),
    nested_reductions=True,
)
"""Capabilities of the kernels: all operations and combiners; no floats below 32 bits, sorts, horizontal
fusion.

The threads are those that the scheduler makes work for: each point of the parallel axes is a work item, so
there are many times more of these.
"""


class OpenClTarget:
    """Scalar work items on an OpenCL device.

    ``queue`` is a queue of the device, in order; left out, one is opened when it is first needed. Raises
    :class:`ToolchainError` for a queue on which the kernels cannot run.
    """

    name = "opencl"

    def __init__(self, queue: cl.CommandQueue | None = None) -> None:
        if queue is not None:
            check_queue(queue)
        self._queue = queue

    @property
    def queue(self) -> cl.CommandQueue:
        """Queue on which the kernels run, and on which :class:`ClMemory` has to copy; raises
        :class:`ToolchainError` if there is no device."""
        if self._queue is None:
            self._queue = open_queue()
        return self._queue

    def capabilities(self) -> Capabilities:
        """Return the capabilities, which are the same on every device that kernels can use."""
        return CAPABILITIES

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        """Return the cost in seconds; memory traffic and arithmetic overlap, launches do not."""
        model = CAPABILITIES.model
        return max(traffic / model.memory_rate, flops / model.flop_rate) + launches * model.launch_seconds

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        """Emit one OpenCL C source; raises ``CodegenError`` for floats below 32 bits."""
        if not plan.kernels:
            return ()
        kernels = tuple(kernel.name for kernel in plan.kernels)
        return (SourceUnit(plan.name, "opencl", emit_plan(plan), kernels, FLAGS),)

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        """Compile a unit into an object file in ``folder``; raises ``ToolchainError``."""
        if unit.language != "opencl":
            raise ToolchainError(
                f"unit {unit.name} is {unit.language}, this target builds OpenCL C",
                hint="build it by the target that emitted it",
            )
        folder.mkdir(parents=True, exist_ok=True)
        return compile_source(unit.name, unit.text, self.queue, folder)

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> OpenClModule:
        """Link built units; raises ``ToolchainError``. Drivers may finish a kernel's compilation at its first
        launch."""
        return OpenClModule(binaries, kernels, self.queue)
