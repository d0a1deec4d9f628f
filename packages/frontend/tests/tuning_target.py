"""The CPU as a target that can be tuned, for tests.

Schedules differ in the unroll factor of loops, by which a clock that the test sets gives the time of a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from litz.timing import Timer
from litz_codegen_cpp.runtime import CpuModule
from litz_codegen_cpp.target import CpuTarget
from litz_ir.errors import CodegenError
from litz_ir.plan import Kernel, Plan
from litz_ir.target import LaunchFunction, SourceUnit

BROKEN = 7
"""Unroll factor of a candidate that is refused."""


class Watched:
    """A module that notes the unroll factor of each kernel that it launches."""

    def __init__(self, module: CpuModule, kernels: Mapping[str, Kernel], launched: list[int]) -> None:
        self._module = module
        self._kernels = kernels
        self._launched = launched

    def function(self, kernel: str) -> LaunchFunction:
        run, unroll = self._module.function(kernel), self._kernels[kernel].schedule.unroll

        def launch(addresses: Sequence[int], symbols: Sequence[int | float]) -> None:
            self._launched.append(unroll)
            run(addresses, symbols)

        return launch


class TunableCpu(CpuTarget):
    """A CPU target; ``launched`` are the unroll factors of all launches so far, timed ones included."""

    def __init__(self, unrolls: Sequence[int] = (2, 4)) -> None:
        super().__init__()
        self.launched: list[int] = []
        self.unrolls = unrolls

    def candidates(self, kernel: Kernel) -> tuple[Kernel, ...]:
        others = (replace(kernel, schedule=replace(kernel.schedule, unroll=each)) for each in self.unrolls)
        return (kernel, *others)

    def described(self, kernel: Kernel) -> str:
        return f"unroll {kernel.schedule.unroll}"

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        return traffic * 1e-6

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        unrolled = sorted({kernel.schedule.unroll for kernel in plan.kernels})
        if BROKEN in unrolled:
            raise CodegenError("too far", node=plan.kernels[0].name)
        said = tuple(f"unrolled {each}" for each in unrolled)
        return tuple(replace(unit, flags=(*unit.flags, *said)) for unit in super().emit(plan))

    def load(  # type: ignore[override]  # the wrapper is no module
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> Watched:
        return Watched(super().load(units, binaries, kernels), kernels, self.launched)


class Stopwatch:
    """Gives the time of a launch by its unroll factor; ``samples`` counts the timed launches."""

    def __init__(self, target: TunableCpu, seconds: Mapping[int, float]) -> None:
        self.samples = 0
        self._target = target
        self._seconds = seconds

    def __call__(self) -> Timer:
        return self._sample

    def _sample(self, call: Callable[[], object]) -> float:
        self.samples += 1
        call()
        return self._seconds[self._target.launched[-1]]
