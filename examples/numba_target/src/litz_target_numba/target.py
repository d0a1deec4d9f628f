"""Target of litz that emits Python for Numba."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from litz_ir.device import Device
from litz_ir.errors import ToolchainError
from litz_ir.plan import Kernel, Plan
from litz_ir.target import Capabilities, DeviceModel, SourceUnit
from litz_target_numba.build import FLAGS, NumbaModule, write_source
from litz_target_numba.emit import emit_plan

CAPABILITIES = Capabilities(
    name="numba",
    device=Device("numba"),
    model=DeviceModel(memory_rate=5e9, flop_rate=1e9, launch_seconds=1e-6),
    scratch_bytes=64 << 10,  # a few of them fit an L2 cache
    max_statements=256,  # Numba compiles some hundred statements a second
    max_subkernels=32,
    nested_reductions=True,
    max_sorted_row=1 << 30,  # rows are sorted in memory
)


class NumbaTarget:
    """Kernels on one thread of a CPU."""

    name = "numba"

    def capabilities(self) -> Capabilities:
        """Return the capabilities: no lanes, one thread, every dtype, operation and combiner."""
        return CAPABILITIES

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        """Return the cost in seconds; memory traffic and arithmetic overlap, launches do not."""
        model = CAPABILITIES.model
        return max(traffic / model.memory_rate, flops / model.flop_rate) + launches * model.launch_seconds

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        """Emit one Python file; raises ``CodegenError`` for a node that is not known here."""
        if not plan.kernels:
            return ()
        kernels = tuple(kernel.name for kernel in plan.kernels)
        return (SourceUnit(plan.name, "numba", emit_plan(plan), kernels, FLAGS),)

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        """Write a unit into ``folder``, to be read; machine code is made at loading. Raises
        ``ToolchainError``."""
        if unit.language != "numba":
            raise ToolchainError(f"unit {unit.name} is {unit.language}, this target builds numba")
        folder.mkdir(parents=True, exist_ok=True)
        return write_source(unit, folder)

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> NumbaModule:
        """Compile built units; raises ``ToolchainError``."""
        return NumbaModule(units, binaries, kernels)
