"""The litz target for NVIDIA GPUs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from litz_codegen_triton import emit, runtime, schedule, tune
from litz_codegen_triton.capabilities import DEFAULT_CHIP, chip_capabilities
from litz_codegen_triton.emit.source.ops_table import spelled_operations
from litz_codegen_triton.emit.source.tensor_descriptors import descriptors_of, descriptors_text
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_codegen_triton.runtime.frozen_copies import COMPARE, COPY, copying_sources
from litz_codegen_triton.runtime.launch import LaunchModule, current_chip
from litz_codegen_triton.runtime.native_launcher import LANGUAGE, build_launcher, launcher_unit
from litz_ir.errors import ToolchainError
from litz_ir.plan import Attention, Kernel, Matmul, Plan
from litz_ir.target import Capabilities, SourceUnit

if TYPE_CHECKING:
    from litz_codegen_triton.emit import KernelSource

__all__ = ["CudaTarget"]


class CudaTarget:
    """Code generation through Triton for one NVIDIA chip.

    ``chip`` is a compute capability such as ``"sm_90"``. By default it is that of the current device, or ``sm_90``
    where there is no GPU, so that plans can be compiled on any machine. ``compiler`` is the command of the C compiler
    that builds the native launcher; by default one is searched for.
    """

    name = "cuda"

    interface = 1
    """Version of the files of cubins and of the arguments that their kernels are launched with."""

    def __init__(self, chip: str | None = None, compiler: str | None = None) -> None:
        self.compiler = compiler
        self.chip = chip or current_chip() or DEFAULT_CHIP

    def arguments(self) -> Mapping[str, str]:
        """Return the argument that makes an equal target in a process that does not use the GPU."""
        return {"chip": self.chip}

    def capabilities(self) -> Capabilities:
        """Return the capabilities of the chip. Raises ``TargetError`` for an unknown chip."""
        return replace(chip_capabilities(self.chip), operations=spelled_operations())

    def runs(self) -> tuple[str, ...]:
        """Return the chip of the current device, whose cubins alone are sure to have the resources that they need."""
        chip = current_chip()
        return () if chip is None else (chip,)

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        """Estimate the run time in seconds: the longer of memory traffic (bytes, at 90% of the nominal bandwidth) and
        arithmetic (at half the nominal rate), which overlap, and the launches."""
        model = self.capabilities().model
        moving, computing = traffic / (0.9 * model.memory_rate), flops / (0.5 * model.flop_rate)
        return max(moving, computing) + launches * model.launch_seconds

    def schedule(self, plan: Plan) -> Plan:
        """Replace each tile request of a plan with a schedule for the chip. Raises ``CodegenError``."""
        return schedule.schedule_plan(plan, self.capabilities())

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        """Emit one source unit for each kernel of a scheduled plan. Raises ``CodegenError``."""
        return tuple(self._unit(source) for source in runtime.plan_sources(plan))

    def copying_units(self) -> tuple[SourceUnit, ...]:
        """Return the kernels that keep copies of memory; no plan has them."""
        sources = copying_sources(emit.KernelSource)
        return tuple(replace(self._unit(source), kernels=()) for source in sources)

    def launcher_unit(self) -> SourceUnit:
        """Return the source of the native launcher, which :meth:`load` takes with the units of a plan."""
        return launcher_unit()

    def _unit(self, source: KernelSource) -> SourceUnit:
        flags = (
            f"chip={self.chip}",
            f"signature={','.join(source.signature)}",
            f"divisible={','.join(map(str, source.divisible))}",
            f"warps={source.warps}",
            f"asserts={int(source.asserts)}",
            f"contract={int(source.contract)}",
            f"descriptors={descriptors_text(source.descriptors)}",
        )
        lines = ((1, len(source.text.splitlines())),)
        return SourceUnit(source.name, "triton", source.text, (source.name,), flags, lines)

    def candidates(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """Return the kernel and at most five variants with other tiles, for autotuning. Raises ``CodegenError``."""
        return tune.candidates(kernel, self.capabilities())

    def described(self, kernel: Kernel) -> str:
        """Describe a kernel's tiles and warps, as in ``x 2, r 1024, 4 warps``. Raises ``CodegenError``."""
        return tune.describe_tiling(kernel)

    def prepare(self) -> int:
        """Start the compiler processes and return how many units can be compiled in parallel."""
        pool = runtime.shared_pool()
        pool.start()
        return max(1, len(pool.workers))

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        """Compile a unit to a file with its cubin, or the native launcher to a library; no GPU is needed.

        Raises ``ToolchainError``.
        """
        if unit.language == LANGUAGE:
            return build_launcher(unit, folder, self.compiler)
        source, chip = _source(unit)
        return runtime.shared_pool().build(source, chip, folder)

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> LaunchModule:
        """Load cubins onto the current device. Raises ``ToolchainError`` where there is no GPU."""
        built = tuple(zip(units, binaries, strict=True))
        launcher = next((path for unit, path in built if unit.language == LANGUAGE), None)
        cubins = [path for unit, path in built if unit.language != LANGUAGE]
        compiled = [CompiledKernel.from_bytes(path.read_bytes()) for path in cubins]
        sources = {unit.name: unit for unit in units}

        def unaligned(name: str) -> CompiledKernel:
            source, chip = _source(sources[name])
            known = kernels[name].schedule
            # A tensor descriptor needs memory that is aligned to 16 bytes.
            if isinstance(known, Matmul) and known.descriptors:
                source = emit.emit_kernel(replace(kernels[name], schedule=replace(known, descriptors=())))
            elif isinstance(known, Attention) and known.descriptors:
                source = emit.emit_kernel(replace(kernels[name], schedule=replace(known, descriptors=False)))
            with tempfile.TemporaryDirectory(prefix="litz-triton-") as folder:
                return runtime.compile_source(source, chip, Path(folder), aligned=False)

        by_name = {kernel.name: kernel for kernel in compiled}
        copying = {name: by_name.pop(name) for name in (COMPARE, COPY) if name in by_name}
        return LaunchModule(by_name, kernels, unaligned, copying, launcher)


def _source(unit: SourceUnit) -> tuple[KernelSource, str]:
    """Return the kernel source and the chip that a unit's flags describe. Raises ``ToolchainError``."""
    if not unit.name.isidentifier():  # it names files too
        raise ToolchainError(f"a source unit cannot be called {unit.name!r}", hint="emit it again")
    flags = dict(flag.split("=", 1) for flag in unit.flags)
    try:
        source = emit.KernelSource(
            name=unit.name,
            text=unit.text,
            signature=tuple(part for part in flags["signature"].split(",") if part),
            divisible=tuple(int(part) for part in flags["divisible"].split(",") if part),
            warps=int(flags["warps"]),
            asserts=flags["asserts"] == "1",
            grid_size=0,
            contract=flags["contract"] == "1",
            descriptors=descriptors_of(flags["descriptors"]),
        )
        return source, flags["chip"]
    except (KeyError, ValueError, TypeError) as error:
        text = f"source unit {unit.name} has no valid build flags: {error}"
        raise ToolchainError(text, hint="emit it again") from error
