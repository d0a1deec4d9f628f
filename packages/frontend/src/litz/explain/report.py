"""``litz.explain``: the compiled form of a function, as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from litz.api import compile_fx, config
from litz.artifact import Artifact, AtenFallback
from litz.explain.graph_breaks import GraphBreak, GraphBreaks
from litz.explain.kernel_times import LaunchTimes
from litz.explain.matmul_precision import matmul_precision
from litz.explain.text import explanation_text
from litz.loading import Compiled
from litz.tuning.launches import PlannedLaunch, planned_launches, size_key
from litz_ir.fused import Decision
from litz_ir.origin import describe_locations
from litz_ir.plan import (
    CallStep,
    Kernel,
    KernelOrigin,
    Launch,
    Plan,
    RegionStep,
    origins_by_subkernel,
    plans_in,
    with_schedules,
)
from litz_ir.symbols import Size, add, mul, product
from litz_ir.target import TunableTarget


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

    @property
    def rate(self) -> float | None:
        """Bytes moved per second; ``None`` where the time was not measured."""
        return None if self.seconds is None else self.nbytes / self.seconds


@dataclass(frozen=True, slots=True)
class CallReport:
    """A library call of the plan."""

    target: str
    """Name of the routine."""

    reason: str
    """Reason that the operation is not generated, as a sentence."""

    line: str
    """The user's source line."""


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
    """Reason that the cache cannot store the graph, which depends on a registered object without identity; else
    empty."""

    @property
    def near_misses(self) -> tuple[Decision, ...]:
        """Decisions against a rewrite of operations that resemble its pattern, such as attention."""
        return tuple(each for each in self.decisions if (each.stage, each.verdict) == ("rewrite", "leave"))


@dataclass(frozen=True, slots=True)
class Explanation:
    """All graphs compiled in one call of a function."""

    graphs: tuple[GraphReport, ...]
    """The compiled graphs."""

    uncompiled: int = 0
    """Number of graphs that run as ATen operations throughout."""

    breaks: tuple[GraphBreak, ...] = ()
    """Graph breaks of the call. Dynamo reports them when it traces, so there are none for a function that is traced
    already."""

    @property
    def kernels(self) -> tuple[KernelReport, ...]:
        """Every kernel launch, in order."""
        return tuple(kernel for graph in self.graphs for kernel in graph.kernels)

    @property
    def calls(self) -> tuple[CallReport, ...]:
        """Every library call, in order."""
        return tuple(call for graph in self.graphs for call in graph.calls)

    @property
    def regions(self) -> tuple[RegionReport, ...]:
        """Every higher-order operator and frozen region, in order."""
        return tuple(region for graph in self.graphs for region in graph.regions)

    @property
    def fallbacks(self) -> tuple[AtenFallback, ...]:
        """Operations without a lowering."""
        return tuple(fallback for graph in self.graphs for fallback in graph.fallbacks)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Every choice of the rewrites and of the scheduler, with its reason."""
        return tuple(decision for graph in self.graphs for decision in graph.decisions)

    @property
    def near_misses(self) -> tuple[Decision, ...]:
        """Operations that resemble a pattern, such as attention, and were not rewritten, with the reason."""
        return tuple(missed for graph in self.graphs for missed in graph.near_misses)

    def __str__(self) -> str:
        return explanation_text(self)


def explain(
    function: Callable[..., Any], *args: Any, backward: bool = False, measure: bool = False, **kwargs: Any
) -> Explanation:
    """Compile ``function`` for these arguments, call it once, and report its compiled form.

    ``backward`` also runs the backward of the results' sum. ``measure`` times each kernel alone during the call, on
    a GPU with an empty cache and without CUDA graphs. With the option ``autotune`` the schedules are those that
    earlier processes or calls found; a single call tunes nothing. The compiled state of ``function`` itself is not
    changed.
    """
    observed: list[tuple[Compiled, LaunchTimes | None]] = []
    chosen = config.current()

    def observe(compiled: Compiled) -> None:
        times = None
        if measure and compiled.loader is not None:
            times = LaunchTimes(compiled.loader.artifact.plan)
            compiled.call = compiled.loader.call(times.watch)
        observed.append((compiled, times))

    def backend(gm: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return compile_fx(gm, inputs, config=chosen, observers=(observe,))

    breaks = GraphBreaks()
    compiled = torch.compile(function, backend=backend)
    with torch.set_grad_enabled(backward or torch.is_grad_enabled()):
        result = compiled(*args, **kwargs)
        if backward:
            leaves = [
                t
                for t in torch.utils._pytree.tree_leaves(result)
                if isinstance(t, torch.Tensor) and t.requires_grad
            ]
            torch.autograd.backward([t.float().sum() for t in leaves])
    graphs = tuple(graph_report(c, times) for c, times in observed if c.artifact is not None)
    return Explanation(graphs, sum(c.artifact is None for c, _ in observed), breaks.found())


def graph_report(compiled: Compiled, times: LaunchTimes | None = None) -> GraphReport:
    """Return the report of one compiled graph, with the times of its kernels where they were measured."""
    artifact = compiled.artifact
    assert artifact is not None
    plan = artifact.plan
    kernels = tuple(_kernel_report(compiled, artifact, planned, times) for planned in planned_launches(plan))
    calls, regions = [], []
    decisions = tuple(decision for each in plans_in(plan) for decision in each.decisions)
    for owner, step in [(each, step) for each in plans_in(plan) for step in each.steps]:
        if isinstance(step, CallStep):
            calls.append(CallReport(step.target, step.reason, step.origin.describe()))
        elif isinstance(step, RegionStep):
            regions.append(_region_report(compiled, owner, step))
    return GraphReport(
        plan.name, plan, kernels, tuple(calls), decisions, artifact.fallbacks, artifact.seconds,
        artifact.cached, compiled.source, tuple(unit.text for unit in artifact.units), tuple(regions),
        compiled.cuda_graph, matmul_precision(plan), artifact.uncacheable,
    )  # fmt: skip


def _kernel_report(
    compiled: Compiled, artifact: Artifact, planned: PlannedLaunch, times: LaunchTimes | None
) -> KernelReport:
    """Return the report of one launch."""
    kernel, origins = planned.kernel, planned.launch.origins
    lines = dict.fromkeys(each.origin.describe() for each in origins if each.origin)
    target: object = None if compiled.loader is None else compiled.loader.targets[planned.device]
    tiles = tuned = ""
    if isinstance(target, TunableTarget):
        tiles = target.described(kernel)
        choice = dict(artifact.tuned_tiles).get(kernel.name)
        if choice is not None:
            own = target.described(with_schedules(kernel, choice.first))
            gain = f"was {own}, {choice.before / choice.seconds:.2f} times as long"
            tuned = "stays" if own == tiles else gain
    seconds = None if times is None else times.seconds.get((kernel.name, size_key(kernel, planned.values)))
    operations = tuple(dict.fromkeys(each.operation for each in origins))
    subkernels = tuple(_subkernel_reports(kernel, origins))
    return KernelReport(kernel, operations, tuple(lines), tiles, tuned, planned.nbytes, seconds, subkernels)


def _subkernel_reports(kernel: Kernel, origins: Sequence[KernelOrigin]) -> Iterator[SubkernelReport]:
    """Yield the reports of a horizontally fused kernel's subkernels."""
    for subkernel, own in zip(kernel.subkernels, origins_by_subkernel(kernel, origins), strict=True):
        operations = tuple(dict.fromkeys(each.operation for each in own))
        yield SubkernelReport(
            len(subkernel.invocations), operations, describe_locations(each.origin for each in own)
        )


def _region_report(compiled: Compiled, owner: Plan, step: RegionStep) -> RegionReport:
    """Return the report of one region."""
    line = step.origin.describe()
    if step.kind != "frozen":
        return RegionReport(step.kind, step.plans, line)
    operations: Counter[str] = Counter()
    for plan in owner.subplans:
        for inner in plan.steps if plan.name in step.plans else ():
            if isinstance(inner, Launch):
                operations.update(origin.operation for origin in inner.origins)
            elif isinstance(inner, CallStep):
                operations[inner.target] += 1
    frozen_bytes, counts = _nbytes(owner, step.results), tuple(operations.items())
    return RegionReport(
        step.kind, step.plans, line, frozen_bytes, len(step.arguments), counts, compiled.frozen
    )


def _nbytes(plan: Plan, names: Iterable[str]) -> Size:
    """Return the total bytes of some values."""
    types = (plan.placement(name).type for name in names)
    return add(*(mul(product(type_.shape), type_.dtype.itemsize) for type_ in types))
