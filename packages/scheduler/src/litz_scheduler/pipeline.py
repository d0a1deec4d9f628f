"""The passes of the scheduler in order: over the loop graph, fusion, and construction of the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from litz_ir.errors import LitzError
from litz_ir.fused import FusedGraph
from litz_ir.loops import LoopGraph
from litz_ir.passes import Hook, Pass, PassContext, Pipeline, Timings, run_pass, run_passes
from litz_ir.plan import Plan
from litz_scheduler.build_plan import (
    BuildSteps,
    FuseLaunches,
    KernelNames,
    NameKernels,
    OrderSteps,
    PlanMemory,
)
from litz_scheduler.fusion import HorizontalFusion, StorageClasses, VerticalFusion
from litz_scheduler.graph_partition import PartitionGraph, Routines
from litz_scheduler.legality.device_support import DeviceSupport, KernelSupport
from litz_scheduler.library import (
    AlignMatmuls,
    FreezeParameterLoops,
    FuseAttention,
    GeneratedAttention,
    GeneratedConvolutions,
    GeneratedMatmuls,
    LinearMatmuls,
    PrepackConvolutions,
    PropagateChannelsLast,
    RowMajorActivations,
    UnfuseBias,
    UnfuseConvolutionBias,
)
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.realise import Inline
from litz_scheduler.reductions.nested_reduction_precision import NestedReductionPrecision
from litz_scheduler.reductions.online_reduction import OnlineReductions
from litz_scheduler.reductions.split_reduction import SplitReductions
from litz_scheduler.reductions.split_scan import SplitScans
from litz_scheduler.simplification.simplify import (
    CommonSubexpressions,
    ComposeViews,
    DeadCode,
    UnitReductions,
)
from litz_scheduler.simplification.sink_constants import SinkConstants

DEFAULT_OPTIONS = SchedulerOptions()


def graph_passes(options: SchedulerOptions) -> tuple[Pass[LoopGraph, LoopGraph], ...]:
    """Return the passes over the loop graph, in order."""
    return (
        FuseAttention(options),
        DeadCode(),
        AlignMatmuls(options),
        ComposeViews(),
        SinkConstants(),
        GeneratedMatmuls(options),
        GeneratedConvolutions(options),
        GeneratedAttention(options),
        LinearMatmuls(options),
        UnfuseBias(),
        UnfuseConvolutionBias(),
        UnitReductions(),
        CommonSubexpressions(),
        Inline(options),
        DeadCode(name="dead-code-2"),
        FreezeParameterLoops(),
        PrepackConvolutions(options),
        PropagateChannelsLast(options),
        RowMajorActivations(),
        OnlineReductions(options),
        SplitReductions(options),
        SplitScans(options),
        NestedReductionPrecision(options),
        DeviceSupport(),
    )


def fusion_passes(options: SchedulerOptions) -> tuple[Pass[Any, Any], ...]:
    """Return the passes from the loop graph to the fused graph, in order."""
    return (
        VerticalFusion(options),
        HorizontalFusion(options),
        StorageClasses(options),
    )


def plan_passes(
    options: SchedulerOptions, source: LoopGraph, names: KernelNames, subplan: Callable[[LoopGraph], Plan]
) -> tuple[Pass[Any, Any], ...]:
    """Return the passes from the fused graph to the plan, in order.

    ``source`` is the original graph, whose operations are the origins of launches. ``names`` has the kernels made
    before. ``subplan`` makes the plans of subgraphs of higher-order operators.
    """
    return (
        BuildSteps(options, source),
        NameKernels(names, subplan),
        OrderSteps(),
        FuseLaunches(options, names),
        PlanMemory(),
        KernelSupport(),
    )


def replay_passes(routines: Routines) -> tuple[Pass[Any, Any], ...]:
    """Return the passes that partition a plan for CUDA graphs when it is loaded, in order.

    ``routines`` describes the routines that the plan calls.
    """
    return (PartitionGraph(routines),)


def schedule(
    graph: LoopGraph,
    context: PassContext,
    options: SchedulerOptions = DEFAULT_OPTIONS,
    *,
    hooks: Sequence[Hook] = (),
    timings: Timings | None = None,
    fuel: int | None = None,
) -> Plan:
    """Return the plan of ``graph`` for the devices whose capabilities are in ``context``.

    ``hooks`` are called after every pass with its name, input and output, also for subgraphs of higher-order operators.
    The fusion passes together are also the pass ``fuse``, and those of the plan ``plan``. ``fuel`` limits the number of
    graph passes. Raises :class:`litz_ir.errors.ScheduleError`.
    """
    watched = PassContext(context.capabilities, context.decisions, hooks, timings)
    return _schedule(graph, watched, options, KernelNames(), fuel)


def _schedule(
    graph: LoopGraph, context: PassContext, options: SchedulerOptions, names: KernelNames, fuel: int | None
) -> Plan:
    def branch(subgraph: LoopGraph) -> Plan:
        inner = PassContext(context.capabilities, hooks=context.hooks, timings=context.timings)
        try:
            return _schedule(subgraph, inner, options, names, fuel)
        except LitzError as error:
            # A name in a subgraph may also occur in the graph around it, so that the error names the subgraph too.
            error.node = f"{subgraph.name}.{error.node}"
            raise

    loops = run_passes(graph_passes(options), graph, context, fuel=fuel)
    fuse = Pipeline[LoopGraph, FusedGraph]("fuse", fusion_passes(options))
    plan = Pipeline[FusedGraph, Plan]("plan", plan_passes(options, graph, names, branch))
    return run_pass(plan, run_pass(fuse, loops, context), context)
