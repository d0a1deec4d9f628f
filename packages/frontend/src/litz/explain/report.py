"""Reports of compiled graphs, as data."""

from __future__ import annotations

from dataclasses import dataclass

from litz.artifact import AtenFallback
from litz.explain.machine import MachineLimits
from litz.passes import DECISIONS
from litz.profiling.line_map import SourceLines
from litz_ir.fused import Decision
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.plan import Kernel, Plan
from litz_ir.symbols import Size
from litz_scheduler import MemoryTimeline


@dataclass(frozen=True, slots=True, order=True)
class StepId:
    """A step of a plan or of a subplan."""

    plan: str
    """Name of the plan."""

    position: int
    """Position among its steps."""


@dataclass(frozen=True, slots=True)
class SubkernelReport:
    """A subkernel of a horizontally fused kernel."""

    invocations: int
    """Number of independent loops that the subkernel runs."""

    operations: tuple[str, ...]
    """Operations that it fuses."""

    lines: tuple[str, ...]
    """The user's source lines that these come from."""


@dataclass(frozen=True, slots=True)
class KernelReport:
    """A launch of a kernel."""

    kernel: Kernel
    """The kernel, as scheduled."""

    operations: tuple[str, ...]
    """Operations that the kernel fuses."""

    lines: tuple[str, ...]
    """The user's source lines that these come from."""

    tiles: str = ""
    """Schedule of a GPU kernel: tile sizes, warps and stages; empty on a CPU."""

    tuned: str = ""
    """Change of the schedule by autotuning; empty where the kernel was not tuned."""

    nbytes: int = 0
    """Bytes that the launch moves at typical sizes, each element counted once."""

    seconds: float | None = None
    """Measured time of the launch, in seconds; ``None`` where it was not measured."""

    subkernels: tuple[SubkernelReport, ...] = ()
    """Subkernels of a horizontally fused kernel; empty for other kernels."""

    flops: int = 0
    """Floating-point operations of the launch at typical sizes, see :func:`litz.explain.work.kernel_flops`."""

    device: str = "cpu"
    """Kind of its device: ``cpu`` or ``cuda``."""

    step: StepId | None = None
    """The step of the plan that launches it."""

    origins: tuple[Origin, ...] = ()
    """Sources of its operations, each line once."""

    source: SourceLines | None = None
    """Lines of the kernel in the graph's ``units``; ``None`` where its target does not say."""

    locations: tuple[str, ...] = ()
    """The user's lines as ``file:line``, each once; those of all subkernels of a horizontally fused kernel."""

    @property
    def rate(self) -> float | None:
        """Bytes moved per second; ``None`` where the time was not measured."""
        return None if self.seconds is None else self.nbytes / self.seconds

    @property
    def flop_rate(self) -> float | None:
        """Floating-point operations per second; ``None`` where the time was not measured."""
        return None if self.seconds is None else self.flops / self.seconds

    def lost_seconds(self, limits: MachineLimits) -> float | None:
        """Return the time beyond that of a kernel that reaches the machine's limits, in seconds, at least 0.

        ``None`` where the time was not measured.
        """
        if self.seconds is None:
            return None
        return max(0.0, self.seconds - limits.seconds(self.nbytes, self.flops))


@dataclass(frozen=True, slots=True)
class CallReport:
    """A library call of the plan."""

    target: str
    """Name of the routine."""

    reason: str
    """Reason that the operation is not generated, as a sentence."""

    line: str
    """The user's source line."""

    nbytes: int = 0
    """Bytes of the tensors that it takes and returns at typical sizes."""

    flops: int | None = None
    """Floating-point operations of a matmul, convolution or attention; ``None`` for other routines."""

    seconds: float | None = None
    """Measured time of the call, in seconds; ``None`` where it was not measured."""

    step: StepId | None = None
    """The step of the plan that makes it."""

    origin: Origin = UNKNOWN
    """Source of the call in the user's program."""

    location: str = ""
    """The user's line as ``file:line``; empty where it is unknown."""


@dataclass(frozen=True, slots=True)
class FallbackCost:
    """Operations of one kind that run as ATen for one reason, with what they cost."""

    target: str
    """Name of the ATen overload."""

    reason: str
    """Reason that the operation is not generated, as a sentence."""

    lines: tuple[str, ...]
    """The user's source lines."""

    calls: int
    """Number of calls in the plans."""

    nbytes: int
    """Bytes of the tensors that they take and return, in all."""

    seconds: float | None
    """Measured time of all calls, in seconds; ``None`` where one was not measured."""


@dataclass(frozen=True, slots=True)
class RegionReport:
    """A higher-order operator, or a frozen region: the parameter-only subgraph."""

    kind: str
    """Kind of the region, such as ``cond`` or ``frozen``."""

    plans: tuple[str, ...]
    """Names of the subplans that it runs."""

    line: str
    """The user's source line."""

    frozen_bytes: Size = 0
    """Bytes of the results of a frozen region, which stay allocated."""

    parameters: int = 0
    """Number of parameters that a frozen region reads."""

    constant_folded: tuple[tuple[str, int], ...] = ()
    """Operations and routines of a frozen region, each with their number."""

    frozen: bool = False
    """True where the results stay for good; False where they stay until a parameter changes."""

    step: StepId | None = None
    """The step of the plan that runs it."""


@dataclass(frozen=True, slots=True)
class GraphReport:
    """A compiled graph.

    Kernels, calls, regions and decisions are those of the plan and of its subplans, each listed once however often a
    higher-order operator runs it.
    """

    name: str
    """Name of the graph, such as ``forward_0``."""

    plan: Plan
    """Its plan."""

    kernels: tuple[KernelReport, ...]
    """Launches, in order."""

    calls: tuple[CallReport, ...]
    """Library calls, in order."""

    decisions: tuple[Decision, ...]
    """Choices of the rewrites and of the scheduler, with their reasons."""

    fallbacks: tuple[AtenFallback, ...]
    """Operations that run as ATen for want of a lowering, or after a failure."""

    seconds: dict[str, float]
    """Time of each stage of the compilation, in seconds."""

    cached: bool
    """True where the graph was read from the cache."""

    source: str
    """Source of the host program."""

    units: tuple[str, ...]
    """Sources of the kernels."""

    regions: tuple[RegionReport, ...] = ()
    """Higher-order operators and frozen regions, in order."""

    cuda_graph: str = ""
    """Description of its CUDA graphs, or the reason that it has none; empty where the option is off."""

    precision: str = ""
    """Precision of f32 matmuls and convolutions on a GPU; empty where there are none."""

    uncacheable: str = ""
    """Reason that the cache cannot store the graph, which depends on a registered object without identity, or on a pass
    without an identifier; else empty."""

    key: str = ""
    """Key of the graph in the AOT graph cache; empty where it cannot be cached."""

    memory: tuple[tuple[str, MemoryTimeline], ...] = ()
    """Modelled memory of the plan, then of each subplan, by name."""

    caching: bool = True
    """False where the option ``cache`` is off."""

    promises: str = ""
    """Options that promise something about results or inputs and are not at their default, such as
    ``numerics='strict'``; empty where all are."""

    miss: str = ""
    """Reason that the graph was not found in the cache: the parts of its key that the nearest entry does not share;
    empty where it was found, or cannot be cached."""

    @property
    def compile_seconds(self) -> float:
        """Time of all stages of the compilation, in seconds."""
        return sum(self.seconds.values())

    @property
    def cache_state(self) -> str:
        """``hit``, ``miss``, ``off`` where the option ``cache`` is off, or ``uncacheable``."""
        if not self.caching:
            return "off"
        return "uncacheable" if self.uncacheable else "hit" if self.cached else "miss"

    @property
    def fallback_costs(self) -> tuple[FallbackCost, ...]:
        """Operations that run as ATen, by target and reason: those that take the most time, or move most, first."""
        return fallback_costs(self)

    @property
    def near_misses(self) -> tuple[Decision, ...]:
        """Decisions against a rewrite of operations that resemble its pattern, such as attention."""
        return tuple(each for each in self.decisions if (each.stage, each.verdict) == ("rewrite", "leave"))

    @property
    def passes(self) -> tuple[Decision, ...]:
        """Users' passes that ran on the graph, each with ``changed`` or ``unchanged``, and the rewrites they report."""
        return tuple(each for each in self.decisions if each.stage.startswith(DECISIONS))


def fallback_costs(graph: GraphReport) -> tuple[FallbackCost, ...]:
    """Return the operations of a graph that run as ATen, by target and reason, with their bytes and times."""
    lines: dict[tuple[str, str], dict[str, None]] = {}
    for each in graph.fallbacks:
        lines.setdefault((each.target, each.reason), {})[each.line] = None
    found = []
    for (target, reason), own in lines.items():
        calls = [call for call in graph.calls if call.target == target and call.line in own]
        times = [call.seconds for call in calls]
        seconds = sum(each for each in times if each is not None) if times and None not in times else None
        nbytes = sum(call.nbytes for call in calls)
        found.append(FallbackCost(target, reason, tuple(filter(None, own)), len(calls), nbytes, seconds))
    return tuple(sorted(found, key=lambda each: (-(each.seconds or 0), -each.nbytes)))
