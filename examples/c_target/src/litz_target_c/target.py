"""Target of litz that emits plain C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from litz_ir.device import Device
from litz_ir.dtypes import ALL
from litz_ir.errors import ToolchainError
from litz_ir.plan import Kernel, Plan
from litz_ir.target import Capabilities, DeviceModel, SourceUnit
from litz_target_c.build import FLAGS, CModule, compile_source, find_compiler
from litz_target_c.emit import emit_plan

CAPABILITIES = Capabilities(
    name="c99",
    device=Device("c"),
    model=DeviceModel(memory_rate=5e9, flop_rate=1e9, launch_seconds=1e-6),
    scratch_bytes=16 << 10,  # they live on the stack
    dtypes=frozenset(dtype for dtype in ALL if not dtype.is_low_precision),
)


class CTarget:
    """Scalar kernels on one thread. ``compiler`` is the command to call; left out, the one on the search path."""

    name = "c"

    def __init__(self, compiler: str | None = None) -> None:
        self._compiler = compiler

    def capabilities(self) -> Capabilities:
        """Return the capabilities: no lanes, one thread, no narrow floats."""
        return CAPABILITIES

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        """Return the cost in seconds; memory traffic and arithmetic overlap, launches do not."""
        model = CAPABILITIES.model
        return max(traffic / model.memory_rate, flops / model.flop_rate) + launches * model.launch_seconds

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        """Emit one C file; raises ``CodegenError`` for random numbers and narrow floats."""
        if not plan.kernels:
            return ()
        kernels = tuple(kernel.name for kernel in plan.kernels)
        return (SourceUnit(plan.name, "c", emit_plan(plan), kernels, FLAGS),)

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        """Compile a unit into a shared library in ``folder``; raises ``ToolchainError``."""
        if unit.language != "c":
            raise ToolchainError(f"unit {unit.name} is {unit.language}, this target builds C")
        folder.mkdir(parents=True, exist_ok=True)
        return compile_source(unit.name, unit.text, find_compiler(self._compiler), folder)

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> CModule:
        """Load built units; raises ``ToolchainError``."""
        return CModule(binaries, kernels)
