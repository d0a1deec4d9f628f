"""``litz.explain``: what became of a function, as data."""

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
    """Loops of a pack that are alike: how many, the operations that they fuse and the user's lines that these came
    from."""

    invocations: int
    operations: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelReport:
    """A launch: the kernel, the operations that it fuses and the user's lines that they came from.

    ``tiles`` says how a GPU's kernel is cut into programs, and ``tuned`` what tuning made of that, where it was tuned.
    A launch has to move ``nbytes`` at sizes that are typical, each element counted once; ``seconds`` is what it took,
    where that was measured. A pack has ``subkernels``.
    """

    kernel: Kernel
    operations: tuple[str, ...]
    lines: tuple[str, ...]
    tiles: str = ""
    tuned: str = ""
    nbytes: int = 0
    seconds: float | None = None
    subkernels: tuple[SubkernelReport, ...] = ()

    @property
    def rate(self) -> float | None:
        """The bytes per second that it achieved, where that was measured."""
        return None if self.seconds is None else self.nbytes / self.seconds


@dataclass(frozen=True, slots=True)
class CallReport:
    """A library call that the plan makes: the routine, why it is not generated, and the user's line."""

    target: str
    reason: str
    line: str


@dataclass(frozen=True, slots=True)
class RegionReport:
    """Control flow: its kind, the subplans that it runs, and the user's line.

    What a region of kind ``keep`` makes of so many ``parameters``, by the operations and routines in
    ``constant_folded`` (each with how often), takes ``frozen_bytes`` bytes: for good where it is ``frozen``, else
    until a parameter changes.
    """

    kind: str
    plans: tuple[str, ...]
    line: str
    frozen_bytes: Size = 0
    parameters: int = 0
    constant_folded: tuple[tuple[str, int], ...] = ()
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class GraphReport:
    """One compiled graph. ``seconds`` gives the time of each stage; ``source`` is the host program, ``units`` the
    kernels' sources; ``cuda_graph`` says whether it is replayed as a CUDA graph, and why not, where that was asked
    for; ``precision`` how precise those of f32 are on a GPU, and convolutions; ``uncacheable`` why the cache cannot
    have it, where it depends on something registered that has no identity. Kernels, calls, regions and decisions are
    those of the plan and of its subplans, each written once however often control flow runs it."""

    name: str
    plan: Plan
    kernels: tuple[KernelReport, ...]
    calls: tuple[CallReport, ...]
    decisions: tuple[Decision, ...]
    fallbacks: tuple[AtenFallback, ...]
    seconds: dict[str, float]
    cached: bool
    source: str
    units: tuple[str, ...]
    regions: tuple[RegionReport, ...] = ()
    cuda_graph: str = ""
    precision: str = ""
    uncacheable: str = ""

    @property
    def near_misses(self) -> tuple[Decision, ...]:
        """What looked like something that is rewritten, and was left as it came."""
        return tuple(each for each in self.decisions if (each.stage, each.verdict) == ("rewrite", "leave"))


@dataclass(frozen=True, slots=True)
class Explanation:
    """All graphs that calling a function made; ``uncompiled`` counts those that run as they came. ``breaks`` are the
    graph breaks of that call: Dynamo tells them where it traces, so not of a function that it knows already."""

    graphs: tuple[GraphReport, ...]
    uncompiled: int = 0
    breaks: tuple[GraphBreak, ...] = ()

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
        """All control flow, in order."""
        return tuple(region for graph in self.graphs for region in graph.regions)

    @property
    def fallbacks(self) -> tuple[AtenFallback, ...]:
        """Operations that litz has no rule for."""
        return tuple(left for graph in self.graphs for left in graph.fallbacks)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Every choice of the rewrites and of the scheduler, with its reason."""
        return tuple(decision for graph in self.graphs for decision in graph.decisions)

    @property
    def near_misses(self) -> tuple[Decision, ...]:
        """What looked like something that is rewritten, such as attention, and was left as it came, with the reason."""
        return tuple(missed for graph in self.graphs for missed in graph.near_misses)

    def __str__(self) -> str:
        return explanation_text(self)


def explain(
    function: Callable[..., Any], *args: Any, backward: bool = False, measure: bool = False, **kwargs: Any
) -> Explanation:
    """Compile ``function`` for these arguments, call it once, and say what was made of it.

    ``backward`` also runs the backward of the results' sum. ``measure`` times each kernel alone while the call runs:
    on a GPU with an empty cache, and nothing is recorded as a CUDA graph then. With the option ``autotune`` tiles are
    those that tuning found before; one call finds none. The function's own compiled state is not touched.
    """
    seen: list[tuple[Compiled, LaunchTimes | None]] = []
    chosen = config.current()

    def observe(compiled: Compiled) -> None:
        times = None
        if measure and compiled.loader is not None:
            times = LaunchTimes(compiled.loader.artifact.plan)
            compiled.call = compiled.loader.call(times.watch)
        seen.append((compiled, times))

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
    graphs = tuple(graph_report(c, times) for c, times in seen if c.artifact is not None)
    return Explanation(graphs, sum(c.artifact is None for c, _ in seen), breaks.found())


def graph_report(compiled: Compiled, times: LaunchTimes | None = None) -> GraphReport:
    """The report of one compiled graph, and of what its kernels took where that was measured."""
    artifact = compiled.artifact
    assert artifact is not None
    plan = artifact.plan
    kernels = tuple(_kernel_report(compiled, artifact, site, times) for site in planned_launches(plan))
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
    compiled: Compiled, artifact: Artifact, site: PlannedLaunch, times: LaunchTimes | None
) -> KernelReport:
    kernel, origins = site.kernel, site.launch.origins
    lines = dict.fromkeys(each.origin.describe() for each in origins if each.origin)
    target: object = None if compiled.loader is None else compiled.loader.targets[site.device]
    tiles = tuned = ""
    if isinstance(target, TunableTarget):
        tiles = target.described(kernel)
        choice = dict(artifact.tuned_tiles).get(kernel.name)
        if choice is not None:
            own = target.described(with_schedules(kernel, choice.first))
            gain = f"was {own}, {choice.before / choice.seconds:.2f} times as long"
            tuned = "stays" if own == tiles else gain
    seconds = None if times is None else times.seconds.get((kernel.name, size_key(kernel, site.values)))
    operations = tuple(dict.fromkeys(each.operation for each in origins))
    parts = tuple(_part_reports(kernel, origins))
    return KernelReport(kernel, operations, tuple(lines), tiles, tuned, site.nbytes, seconds, parts)


def _part_reports(kernel: Kernel, origins: Sequence[KernelOrigin]) -> Iterator[SubkernelReport]:
    for part, own in zip(kernel.subkernels, origins_by_subkernel(kernel, origins), strict=True):
        operations = tuple(dict.fromkeys(each.operation for each in own))
        yield SubkernelReport(
            len(part.invocations), operations, describe_locations(each.origin for each in own)
        )


def _region_report(compiled: Compiled, owner: Plan, step: RegionStep) -> RegionReport:
    line = step.origin.describe()
    if step.kind != "frozen":
        return RegionReport(step.kind, step.plans, line)
    folded: Counter[str] = Counter()
    for plan in owner.subplans:
        for inner in plan.steps if plan.name in step.plans else ():
            if isinstance(inner, Launch):
                folded.update(origin.operation for origin in inner.origins)
            elif isinstance(inner, CallStep):
                folded[inner.target] += 1
    kept, counts = _nbytes(owner, step.results), tuple(folded.items())
    return RegionReport(step.kind, step.plans, line, kept, len(step.arguments), counts, compiled.frozen)


def _nbytes(plan: Plan, names: Iterable[str]) -> Size:
    """The bytes of values together."""
    types = (plan.placement(name).type for name in names)
    return add(*(mul(product(type_.shape), type_.dtype.itemsize) for type_ in types))
