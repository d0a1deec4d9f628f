"""The contents of a page: an explanation in the order of the template."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from litz.explain.explanation import Explanation
from litz.explain.page.charts import Measured, MemoryChart, Roofline, memory_chart, roofline
from litz.explain.page.drawing import Drawing, drawing
from litz.explain.page.sources import CodeBlock, SourceFile, code_blocks, source_files
from litz.explain.page.step_texts import StepRow, step_rows
from litz.explain.report import CallReport, GraphReport, KernelReport, StepId
from litz_ir.fused import Decision
from litz_ir.origin import Origin, abbreviated_list
from litz_ir.plan import Launch, Plan, plans_in
from litz_scheduler import MemoryOwner, MemoryTimeline

KeyOf = Callable[[StepId | None], str]
"""Function that returns the key of a step in the page."""

_NUMBER = re.compile(r"_\d+")
"""Number in a name, which tells layers apart that are alike."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """Equal launches of one kernel."""

    report: KernelReport
    """The first of them."""

    launches: int
    """Their number."""

    keys: str
    """Keys of their steps."""

    lost: float | None
    """Time that all of them lose to the machine's limits, in seconds; ``None`` where it was not measured."""

    reached: float | None
    """Part of the machine's limit that each reaches, from 0 on; above 1 where data is in caches."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """Equal library calls."""

    report: CallReport
    """The first of them."""

    calls: int
    """Their number."""

    keys: str
    """Keys of their steps."""


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """Decisions that are equal but for numbers in names."""

    decision: Decision
    """The first of them."""

    values: str
    """Values or groups that they are about, abbreviated."""

    count: int
    """Their number."""

    nbytes: int
    """Bytes at stake in all of them."""


@dataclass(frozen=True, slots=True)
class OwnerRow:
    """A value that is alive at the memory peak."""

    owner: MemoryOwner
    """The value."""

    line: str
    """The user's line of the step that computes it; empty where it is unknown."""

    share: float
    """Part of the peak, from 0 to 1."""

    keys: str
    """Key of the step that computes it."""


@dataclass(frozen=True, slots=True)
class MemoryView:
    """Memory of one plan."""

    plan: str
    """Name of the plan."""

    timeline: MemoryTimeline
    """Its memory."""

    chart: MemoryChart
    """Its chart."""

    keys: tuple[str, ...]
    """Key of each step."""

    owners: tuple[OwnerRow, ...]
    """Values alive at the peak, the largest first."""

    others: int
    """Bytes of further values alive at the peak, of gaps, and of what a step allocates itself."""


@dataclass(frozen=True, slots=True)
class GraphView:
    """One graph of a page."""

    report: GraphReport
    """The graph."""

    number: int
    """Its number in the page."""

    drawing: Drawing
    """Its drawing."""

    files: tuple[SourceFile, ...]
    """Excerpts of the user's files."""

    code: tuple[CodeBlock, ...]
    """Generated code."""

    plans: tuple[tuple[str, tuple[StepRow, ...]], ...]
    """Steps of the plan, then of each subplan, by its name."""

    memory: tuple[MemoryView, ...]
    """Memory of each plan that allocates any."""

    roofline: Roofline | None
    """Roofline of kernels and calls; ``None`` where nothing was measured."""

    kernels: tuple[KernelRow, ...]
    """Kernels, equal launches together."""

    calls: tuple[CallRow, ...]
    """Library calls, equal ones together."""

    decisions: tuple[DecisionRow, ...]
    """Decisions, equal ones together."""

    stages: tuple[tuple[str, float, float], ...]
    """Stages of the compilation: name, seconds, and part of the longest one."""

    @property
    def measured(self) -> bool:
        """True where times were measured."""
        return any(row.report.seconds is not None for row in self.kernels)


_LISTED_OWNERS = 12
"""Values at the peak that a page lists; it sums the rest."""


def graph_view(explanation: Explanation, graph: GraphReport, number: int) -> GraphView:
    """Return the view of one graph."""
    plans = {plan.name: f"{number}.{position}" for position, plan in enumerate(plans_in(graph.plan))}

    def key(step: StepId | None) -> str:
        return "" if step is None else f"{plans[step.plan]}.{step.position}"

    origins: list[tuple[Origin, str]] = []
    for kernel in graph.kernels:
        origins += [(origin, key(kernel.step)) for origin in kernel.origins]
    origins += [(call.origin, key(call.step)) for call in graph.calls]
    lines = {each: origin.describe() for origin, each in reversed(origins)}
    longest = max(graph.seconds.values(), default=0.0) or 1.0
    kernels = tuple(_kernel_rows(explanation, graph, key))
    calls = tuple(_call_rows(graph, key))
    return GraphView(
        report=graph,
        number=number,
        drawing=drawing(graph, f"{number}.0"),
        files=source_files(origins),
        code=code_blocks(graph.units, [(each, key(each.step)) for each in graph.kernels]),
        plans=tuple((plan.name, step_rows(plan, plans[plan.name])) for plan in plans_in(graph.plan)),
        memory=tuple(_memory_views(graph, plans, lines)),
        roofline=_roofline(explanation, graph, kernels, calls),
        kernels=kernels,
        calls=calls,
        decisions=tuple(_decision_rows(graph.plan)),
        stages=tuple((name, seconds, seconds / longest) for name, seconds in graph.seconds.items()),
    )


def _roofline(
    explanation: Explanation, graph: GraphReport, kernels: Sequence[KernelRow], calls: Sequence[CallRow]
) -> Roofline | None:
    """Return the roofline of what was measured on the plan's device."""
    limits = explanation.limits_of(graph.plan.device.kind)
    if limits is None:
        return None
    work = [
        Measured(r.report.nbytes, r.report.flops, r.report.seconds, r.report.kernel.name, r.keys, call=False)
        for r in kernels
        if r.report.seconds is not None
    ]
    work += [
        Measured(r.report.nbytes, r.report.flops or 0, r.report.seconds, r.report.target, r.keys, call=True)
        for r in calls
        if r.report.seconds is not None
    ]
    return roofline(work, limits)


def _kernel_rows(explanation: Explanation, graph: GraphReport, key: KeyOf) -> Iterator[KernelRow]:
    """Yield a row for all launches of a kernel that move as many bytes in the same time."""
    rows: dict[tuple[str, int, float | None], list[KernelReport]] = {}
    for report in graph.kernels:
        rows.setdefault((report.kernel.name, report.nbytes, report.seconds), []).append(report)
    for own in rows.values():
        lost = explanation.lost_seconds(own[0])
        limits, seconds = explanation.limits_of(own[0].device), own[0].seconds
        reached = None
        if limits is not None and seconds:
            reached = limits.seconds(own[0].nbytes, own[0].flops) / seconds
        keys = " ".join(key(each.step) for each in own)
        yield KernelRow(own[0], len(own), keys, None if lost is None else lost * len(own), reached)


def _call_rows(graph: GraphReport, key: KeyOf) -> Iterator[CallRow]:
    """Yield a row for all calls of a routine that move as many bytes for the same reason in the same time."""
    rows: dict[tuple[object, ...], list[CallReport]] = {}
    for each in graph.calls:
        rows.setdefault((each.target, each.reason, each.nbytes, each.flops, each.seconds), []).append(each)
    for own in rows.values():
        yield CallRow(own[0], len(own), " ".join(key(each.step) for each in own))


def _decision_rows(plan: Plan) -> Iterator[DecisionRow]:
    """Yield a row for all decisions of a stage that are alike but for numbers."""
    rows: dict[tuple[str, ...], list[tuple[Decision, int]]] = {}
    for owner in plans_in(plan):
        for each in owner.decisions:
            group = (each.stage, each.verdict, each.reason.key, _NUMBER.sub("", each.subject))
            rows.setdefault(group, []).append((each, owner.symbols.hint(each.bytes)))
    for own in rows.values():
        values = abbreviated_list(each.subject for each, _ in own)
        yield DecisionRow(own[0][0], values, len(own), sum(nbytes for _, nbytes in own))


def _memory_views(
    graph: GraphReport, plans: Mapping[str, str], lines: Mapping[str, str]
) -> Iterator[MemoryView]:
    """Yield the memory of each plan that allocates any."""
    for name, timeline in graph.memory:
        chart = memory_chart(timeline)
        if chart is None:
            continue
        shown = timeline.owners[:_LISTED_OWNERS]
        computed = _computed_lines(next(plan for plan in plans_in(graph.plan) if plan.name == name))
        rows = []
        for owner in shown:
            key = f"{plans[name]}.{owner.first}"
            line = computed.get(owner.value) or lines.get(key, "")
            rows.append(OwnerRow(owner, line, owner.nbytes / timeline.peak, key))
        others = timeline.peak - sum(owner.nbytes for owner in shown)
        keys = tuple(f"{plans[name]}.{position}" for position in range(len(timeline.live)))
        yield MemoryView(name, timeline, chart, keys, tuple(rows), max(0, others))


def _computed_lines(plan: Plan) -> dict[str, str]:
    """Return the user's line of each operation of a kernel, by the name of its value."""
    launches = (step for step in plan.steps if isinstance(step, Launch))
    return {
        each.operation: each.origin.describe() for step in launches for each in step.origins if each.origin
    }
