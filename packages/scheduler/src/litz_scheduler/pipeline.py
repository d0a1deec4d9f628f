"""The scheduler on one screen: passes over the loop graph, then fusion, then the plan."""

from __future__ import annotations

import time
from collections.abc import Sequence

from litz_ir.fused.group import FusedGraph
from litz_ir.loops.nodes import LoopGraph
from litz_ir.passes.base import Pass, PassContext
from litz_ir.passes.pipeline import Hook, Timings, run_passes
from litz_ir.plan.program import Plan
from litz_scheduler.build_plan import build_plan
from litz_scheduler.fusion import fuse
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.realise import Inline
from litz_scheduler.simplify import CommonSubexpressions, ComposeViews, DeadCode, SinglePoints

DEFAULTS = SchedulerOptions()


def graph_passes(options: SchedulerOptions) -> tuple[Pass[LoopGraph], ...]:
    """What runs on the loop graph, in order."""
    return (
        DeadCode(),
        ComposeViews(),
        SinglePoints(),
        CommonSubexpressions(),
        Inline(options),
        DeadCode(name="dead-code-2"),
    )


def schedule(
    graph: LoopGraph,
    context: PassContext,
    options: SchedulerOptions = DEFAULTS,
    *,
    hooks: Sequence[Hook] = (),
    timings: Timings | None = None,
    fuel: int | None = None,
) -> Plan:
    """A plan for ``graph`` on the devices whose capabilities ``context`` holds.

    ``hooks`` are called after every stage with its name, input and output; ``fuel`` stops the graph passes early.
    Raises :class:`litz_ir.errors.ScheduleError`.
    """
    source = graph
    graph = run_passes(graph_passes(options), graph, context, hooks=hooks, timings=timings, fuel=fuel)

    def branch(subgraph: LoopGraph) -> Plan:
        return schedule(subgraph, PassContext(context.capabilities), options, hooks=hooks, timings=timings)

    started = time.perf_counter()
    fused: FusedGraph = fuse(graph, context, options)
    middle = time.perf_counter()
    for hook in hooks:
        hook("fuse", graph, fused)
    resumed = time.perf_counter()
    plan = build_plan(fused, context, options, branch, source)
    if timings is not None:
        timings.add("fuse", middle - started)
        timings.add("plan", time.perf_counter() - resumed)
    for hook in hooks:
        hook("plan", fused, plan)
    return plan
