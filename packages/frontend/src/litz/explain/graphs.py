"""Reports of compiled graphs, from their artifacts and from the times that were observed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from litz.artifact import Artifact
from litz.cache.misses import miss_in
from litz.explain.call_times import CallTimes
from litz.explain.kernel_times import LaunchTimes
from litz.explain.matmul_precision import matmul_precision
from litz.explain.report import (
    CallReport,
    GraphReport,
    KernelReport,
    RegionReport,
    StepId,
    SubkernelReport,
)
from litz.explain.work import call_bytes, call_flops, kernel_flops, shape_of
from litz.loading import Compiled
from litz.profiling.line_map import SourceLines, locations, source_lines
from litz.tuning.launches import PlannedLaunch, planned_launches, size_key
from litz_ir.errors import CacheError
from litz_ir.loops import references
from litz_ir.origin import Origin, describe_locations
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
from litz_scheduler import memory_timeline


@dataclass(frozen=True, slots=True)
class Times:
    """Observers of one graph's calls."""

    launches: LaunchTimes
    """Times of its launches."""

    calls: CallTimes
    """Times of its library calls."""


def graph_report(compiled: Compiled, times: Times | None = None) -> GraphReport:
    """Return the report of one compiled graph, with the times of launches and calls where they were measured."""
    artifact = compiled.artifact
    assert artifact is not None
    plan = artifact.plan
    sources = source_lines(artifact.units)
    kernels = tuple(
        _kernel_report(compiled, artifact, planned, times, sources.get(planned.kernel.name))
        for planned in planned_launches(plan)
    )
    calls, regions = [], []
    decisions = tuple(decision for each in plans_in(plan) for decision in each.decisions)
    for owner in plans_in(plan):
        for position, step in enumerate(owner.steps):
            at = StepId(owner.name, position)
            if isinstance(step, CallStep):
                calls.append(_call_report(owner, step, at, times))
            elif isinstance(step, RegionStep):
                regions.append(replace(_region_report(compiled, owner, step), step=at))
    threads = torch.get_num_threads()
    memory = tuple((each.name, memory_timeline(each, threads)) for each in plans_in(plan))
    return GraphReport(
        plan.name, plan, kernels, tuple(calls), decisions, artifact.fallbacks, artifact.seconds,
        artifact.cached, compiled.source, tuple(unit.text for unit in artifact.units), tuple(regions),
        compiled.cuda_graph, matmul_precision(plan), artifact.uncacheable, artifact.key, memory,
        compiled.loader is None or compiled.loader.config.cache,
        "" if compiled.loader is None else compiled.loader.config.promises(), _miss(compiled, artifact),
    )  # fmt: skip


def _miss(compiled: Compiled, artifact: Artifact) -> str:
    """Return the reason that a graph was compiled although the cache is on; empty where it was found."""
    if artifact.cached or not artifact.key or compiled.loader is None or not compiled.loader.config.uses_disk:
        return ""
    options = compiled.loader.config
    try:
        found = miss_in(artifact.key, options.cache_root(), options.layer_roots())
    except (OSError, CacheError):  # a folder that cannot be used was reported when it was opened
        return ""
    return "" if found is None else found.reason


def _kernel_report(
    compiled: Compiled,
    artifact: Artifact,
    planned: PlannedLaunch,
    times: Times | None,
    source: SourceLines | None,
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
    key = kernel.name, size_key(kernel, planned.values)
    return KernelReport(
        kernel,
        operations=tuple(dict.fromkeys(each.operation for each in origins)),
        lines=tuple(lines),
        tiles=tiles,
        tuned=tuned,
        nbytes=planned.nbytes,
        seconds=None if times is None else times.launches.seconds.get(key),
        subkernels=tuple(_subkernel_reports(kernel, origins)),
        flops=kernel_flops(kernel, planned.values),
        device=planned.device.kind,
        step=StepId(planned.plan.name, planned.position),
        origins=_distinct(each.origin for each in origins),
        source=source,
        locations=locations(each.origin for each in origins),
    )


def _call_report(owner: Plan, step: CallStep, at: StepId, times: Times | None) -> CallReport:
    """Return the report of one library call."""
    placements = dict(owner.buffers)
    named = tuple(value for _, value in step.attributes)
    given = (name for each in (*step.arguments, *named) for name in references(each) if name in placements)
    key = step.target, tuple(shape_of(name, owner, placements) for name in given)
    return CallReport(
        step.target,
        step.reason,
        step.origin.describe(),
        call_bytes(step, owner),
        call_flops(step, owner),
        None if times is None else times.calls.seconds(key),
        at,
        step.origin,
        "".join(locations([step.origin])),
    )


def _distinct(origins: Iterable[Origin]) -> tuple[Origin, ...]:
    """Return the first origin of each line of the user's program."""
    found: dict[tuple[str, int], Origin] = {}
    for each in origins:
        if each.file:
            found.setdefault((each.file, each.line), each)
    return tuple(found.values())


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
