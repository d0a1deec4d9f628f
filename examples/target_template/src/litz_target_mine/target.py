"""The target: what litz finds by the entry point, and what passes may know of the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from litz_ir.device import Device
from litz_ir.errors import CodegenError
from litz_ir.plan import Kernel, Plan
from litz_ir.target import Capabilities, DeviceModel, SourceUnit, requirements_of
from litz_target_mine import language
from litz_target_mine.emit import Writer
from litz_target_mine.launch import MineModule, build_source

CAPABILITIES = Capabilities(
    name="mine",
    device=Device("mine"),
    model=DeviceModel(memory_rate=1e7, flop_rate=1e6, launch_seconds=1e-5),
    scratch_bytes=64 << 10,
    max_statements=256,
    dtypes=frozenset(language.TYPES),
    operations=frozenset(language.OPERATIONS),
    combiners=language.COMBINERS,
)


class MineTarget:
    """Scalar kernels on one thread."""

    name = "mine"

    def capabilities(self) -> Capabilities:
        """Return the capabilities."""
        return CAPABILITIES

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        """Return the cost in seconds; memory traffic and arithmetic overlap, launches do not."""
        model = CAPABILITIES.model
        return max(traffic / model.memory_rate, flops / model.flop_rate) + launches * model.launch_seconds

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        """Return one source, whose functions are called by their kernels' positions, as names may have any characters.

        Raises :class:`CodegenError` for a kernel beyond the capabilities.
        """
        texts = [language.PRELUDE]
        for position, kernel in enumerate(plan.kernels):
            if lack := requirements_of(kernel).lacking(CAPABILITIES):
                raise CodegenError(
                    f"{kernel.name} needs {lack}", node=kernel.name, hint="add it to language.py"
                )
            texts.append(Writer(kernel).function(language.ENTRY_POINT.format(position)))
        names = tuple(kernel.name for kernel in plan.kernels)
        return (SourceUnit(plan.name, language.NAME, "\n".join(texts), names),)

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        """Build a source into a file in ``folder``; raises ``ToolchainError``."""
        return build_source(unit, folder)

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> MineModule:
        """Load built sources."""
        return MineModule(units, binaries, kernels)
