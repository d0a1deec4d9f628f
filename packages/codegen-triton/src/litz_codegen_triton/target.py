"""NVIDIA GPUs as a litz target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from litz_codegen_triton.capabilities import DEFAULT_CHIP, chip_capabilities
from litz_codegen_triton.emit.kernel import KernelSource
from litz_codegen_triton.runtime.compile import CompiledKernel, compile_source, plan_sources, write_compiled
from litz_codegen_triton.runtime.launch import LaunchModule, current_chip
from litz_ir.errors import ToolchainError
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Plan
from litz_ir.target.capabilities import Capabilities
from litz_ir.target.protocol import Module, SourceUnit

_LAUNCH_SECONDS = 4e-6


class CudaTarget:
    """Kernels made by Triton for one kind of NVIDIA chip.

    ``chip`` names it (``"sm_90"``); without one it is the chip of the current device, or ``sm_90`` where no device can
    be seen, so that plans can be made and compiled on a machine without a GPU.
    """

    name = "cuda"

    def __init__(self, chip: str | None = None) -> None:
        self.chip = chip or current_chip() or DEFAULT_CHIP

    def capabilities(self) -> Capabilities:
        """What the chip can do."""
        return chip_capabilities(self.chip)

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        """Memory traffic at nine tenths of the nominal rate, arithmetic under it, and the launches."""
        known = self.capabilities()
        return (
            max(traffic / (0.9 * known.memory_rate), flops / (0.5 * known.flop_rate))
            + launches * _LAUNCH_SECONDS
        )

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        """One unit per kernel. Raises ``CodegenError``."""
        return tuple(self._unit(source) for source in plan_sources(plan, self.capabilities().processors))

    def _unit(self, source: KernelSource) -> SourceUnit:
        flags = (
            f"chip={self.chip}",
            f"signature={','.join(source.signature)}",
            f"divisible={','.join(map(str, source.divisible))}",
            f"warps={source.warps}",
            f"asserts={int(source.asserts)}",
        )
        return SourceUnit(source.name, "triton", source.text, (source.name,), flags)

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        """Compile a unit to a file that holds its cubin; needs no GPU. Raises ``CompileFailed``."""
        flags = dict(flag.split("=", 1) for flag in unit.flags)
        try:
            source = KernelSource(
                name=unit.name,
                text=unit.text,
                signature=tuple(part for part in flags["signature"].split(",") if part),
                divisible=tuple(int(part) for part in flags["divisible"].split(",") if part),
                warps=int(flags["warps"]),
                asserts=flags["asserts"] == "1",
                programs=0,
            )
        except (KeyError, ValueError) as error:
            raise ToolchainError(
                f"unit {unit.name} lacks what its build depends on: {error}", hint="emit it again"
            ) from error
        return write_compiled(compile_source(source, flags["chip"], folder), folder)

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> Module:
        """Load cubins onto the current device. Raises ``ToolchainError`` where there is none."""
        compiled = [CompiledKernel.from_bytes(path.read_bytes()) for path in binaries]
        return LaunchModule(
            {kernel.name: kernel for kernel in compiled}, kernels, self.capabilities().processors
        )
