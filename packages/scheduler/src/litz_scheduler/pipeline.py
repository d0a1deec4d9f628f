"""The passes of the scheduler in order: over the loop graph, fusion, and construction of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litz_ir.errors import ConfigError, LitzError
from litz_ir.fused import FusedGraph
from litz_ir.loops import LoopGraph
from litz_ir.passes import Hook, Pass, PassContext, Pipeline, Timings, run_pass, run_passes
from litz_ir.plan import Plan
from litz_ir.target import DeviceClass
from litz_scheduler.analysis.cost_model import CostModel, ThresholdCosts
from litz_scheduler.arguments import (
    VerifyResults,
    require,
    require_context,
    require_costs,
    require_run,
    verify,
)
from litz_scheduler.build_plan import (
    BuildSteps,
    FuseLaunches,
    NameKernels,
    OrderSteps,
    PlanMemory,
    SchedulingContext,
)
from litz_scheduler.fusion import HorizontalFusion, StorageClasses, VerticalFusion
from litz_scheduler.graph_partition import PartitionGraph, Routines
from litz_scheduler.legality.device_support import DeviceSupport, KernelSupport
from litz_scheduler.library import (
    ChooseStrategies,
    FreezeParameterCopies,
    FreezeParameterLoops,
    FuseAttention,
    FuseConvolutionRelu,
    LinearMatmuls,
    PrepackConvolutions,
    PrepackMatmuls,
    PropagateChannelsLast,
    RowMajorActivations,
    contraction_strategies,
    convolution_strategies,
    matmul_strategies,
)
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.passes import REQUIRED, PassList
from litz_scheduler.realise import Inline
from litz_scheduler.reductions.column_sums import ColumnSums
from litz_scheduler.reductions.nested_reduction_precision import NestedReductionPrecision
from litz_scheduler.reductions.online_reduction import OnlineReductions
from litz_scheduler.reductions.row_and_column_sums import RowAndColumnSums
from litz_scheduler.reductions.split_reduction import SplitReductions
from litz_scheduler.reductions.split_scan import SplitScans
from litz_scheduler.reductions.sums_of_chunks import SumsOfChunks
from litz_scheduler.simplification.one_hot_sums import OneHotSums
from litz_scheduler.simplification.simplify import (
    CommonSubexpressions,
    ComposeViews,
    DeadCode,
    UnitReductions,
)
from litz_scheduler.simplification.sink_constants import SinkConstants
from litz_scheduler.simplification.uniform_selects import UniformSelects

DEFAULT_OPTIONS = SchedulerOptions()


def graph_passes(
    options: SchedulerOptions, costs: CostModel | None = None
) -> tuple[Pass[LoopGraph, LoopGraph], ...]:
    """Return the passes over the loop graph, in order."""
    costs = costs or ThresholdCosts(options)
    passes: tuple[Pass[LoopGraph, LoopGraph], ...] = (
        FuseAttention(options),
        DeadCode(),
        ChooseStrategies(matmul_strategies(options), "matmul-strategies", costs, "gpu"),
        ComposeViews(),
        SinkConstants(),
        ChooseStrategies(contraction_strategies(options), "contraction-strategies", costs),
        LinearMatmuls(options),
        UnitReductions(),
        CommonSubexpressions(),
        OneHotSums(),
        Inline(costs),
        DeadCode(name="dead-code-2"),
        UniformSelects(),
        FreezeParameterLoops(),
        PrepackConvolutions(options),
        PropagateChannelsLast(options),
        ChooseStrategies(convolution_strategies(), "convolution-strategies", costs, "gpu"),
        PrepackMatmuls(options),
        RowMajorActivations(),
        FuseConvolutionRelu(options),
        FreezeParameterCopies(),
        NestedReductionPrecision(options),
        RowAndColumnSums(options),
        ColumnSums(options),
        SumsOfChunks(),
        OnlineReductions(costs),
        SplitReductions(costs),
        SplitScans(options),
        DeviceSupport(),
    )
    return tuple(each for each in passes if not options.exact or not each.ulp or each.name in REQUIRED)


def fusion_passes(options: SchedulerOptions, costs: CostModel | None = None) -> tuple[Pass[Any, Any], ...]:
    """Return the passes from the loop graph to the fused graph, in order."""
    costs = costs or ThresholdCosts(options)
    return (
        VerticalFusion(options, costs),
        HorizontalFusion(options),
        StorageClasses(costs),
    )


def plan_passes(options: SchedulerOptions) -> tuple[Pass[Any, Any], ...]:
    """Return the passes from the fused graph to the plan, in order. Their context is a :class:`SchedulingContext`."""
    return (
        BuildSteps(options),
        NameKernels(),
        OrderSteps(),
        FuseLaunches(options),
        PlanMemory(),
        KernelSupport(),
    )


def default_passes(options: SchedulerOptions = DEFAULT_OPTIONS, costs: CostModel | None = None) -> PassList:
    """Return the passes that :func:`schedule` runs, to be edited by name.

    ``costs`` answers where several programs are right; by default it compares with the thresholds of ``options``.
    """
    require(SchedulerOptions, options, "options")
    if costs is not None:
        require_costs(costs)
    return PassList(graph_passes(options, costs), fusion_passes(options, costs), plan_passes(options))


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
    passes: PassList | None = None,
    verified: bool = False,
    hooks: Sequence[Hook] = (),
    timings: Timings | None = None,
    fuel: int | None = None,
) -> Plan:
    """Return the plan of ``graph`` for the devices whose capabilities are in ``context``.

    ``passes`` are by default ``default_passes(options)``; with a list of one's own, options are given to
    :func:`default_passes` instead. The graph is verified, and with passes of one's own what each pass returns, unless
    ``verified`` says that they need not be. ``hooks`` and those of the context are called after every pass with its
    name, input and output, also for subgraphs of higher-order operators; ``timings`` or those of the context collect
    seconds. The fusion passes together are also the pass ``fuse``, and those of the plan ``plan``. ``fuel`` limits the
    number of graph passes, and the fuel of the context (:class:`litz_ir.passes.Fuel`) transformations of each kind.
    Decisions are added to the context's, and the plan has its own.

    Raises :class:`litz_ir.errors.ScheduleError` for what the devices cannot run,
    :class:`litz_ir.errors.VerifyError` for a malformed graph, :class:`litz_ir.errors.PassError` for a pass that fails,
    and :class:`litz_ir.errors.ConfigError` for wrong arguments.
    """
    require(LoopGraph, graph, "the graph")
    require_context(context)
    require(SchedulerOptions, options, "options")
    require_run(hooks, timings, fuel)
    own = passes is not None
    if passes is None:
        passes = default_passes(options)
    else:
        require(PassList, passes, "passes")
        if options != DEFAULT_OPTIONS:
            raise ConfigError(
                "options are given besides passes, which have their own",
                hint="give the options to default_passes",
            )
    if not verified:
        verify(graph)
    watching = (*context.hooks, *hooks, *((VerifyResults(),) if own and not verified else ()))
    run = SchedulingContext(
        context.capabilities,
        hooks=watching,
        timings=timings or context.timings,
        fuel=context.fuel,
        source=graph,
    )
    run.plan_names.unique(graph.name)
    try:
        return _schedule(graph, run, passes, fuel)
    finally:
        context.decisions += run.decisions


def _device_classes(graph: LoopGraph, context: PassContext) -> frozenset[DeviceClass]:
    """Return the classes of the devices that values of a graph are on."""
    machines = map(context.machine, {value.type.device for value in graph.values().values()})
    return frozenset(machine.device_class for machine in machines if machine is not None)


def _schedule(graph: LoopGraph, context: SchedulingContext, passes: PassList, fuel: int | None) -> Plan:
    def subplan(subgraph: LoopGraph) -> Plan:
        inner = SchedulingContext(
            context.capabilities,
            hooks=context.hooks,
            timings=context.timings,
            fuel=context.fuel,
            source=subgraph,
            names=context.names,
            plan_names=context.plan_names,
        )
        try:
            return _schedule(subgraph, inner, passes, fuel)
        except LitzError as error:
            # A name in a subgraph may also occur in the graph around it, so that the error names the subgraph too.
            error.node = f"{subgraph.name}.{error.node}"
            raise

    fuse = Pipeline[LoopGraph, FusedGraph]("fuse", passes.fusion, counted="plan-pass", always=REQUIRED)
    plan = Pipeline[FusedGraph, Plan]("plan", passes.plan, counted="plan-pass", always=REQUIRED)
    outer, context.subplan = context.subplan, subplan
    try:
        chosen = passes.graph_for(_device_classes(graph, context))
        loops = run_passes(chosen, graph, context, fuel=fuel, counted="graph-pass", always=REQUIRED)
        return run_pass(plan, run_pass(fuse, loops, context), context)
    finally:
        context.subplan = outer  # a cycle of context and function would keep the graph until a collection
