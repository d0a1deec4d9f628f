"""Tuning around the stages: products of matrices are generated or called, whichever takes less time."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial

from litz.artifact import Artifact
from litz.compilation.cached import CachedGraph
from litz.host.load import HostFunction
from litz.loading import Loader, loader_of
from litz.pipeline import Stages
from litz.results import may_replace
from litz.settings import Config
from litz.stage_options import scheduler_options
from litz.timing import Timer
from litz.tuning.generated_matmuls import faster_generated, may_be_generated
from litz.tuning.matmul_choices import comparison_options
from litz.tuning.tuned_graph import Better, with_tuning
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import Plan
from litz_lowering import LoweredGraph
from litz_scheduler import schedule

log = logging.getLogger("litz")


def search_of(
    stages: Stages, kept: CachedGraph, timed: str, lowered: LoweredGraph, first: Plan
) -> Better | None:
    """What looks for a better plan than the ``first`` while the graph is called; ``None`` where it calls no product,
    which is kept by the key ``timed``."""
    if may_be_generated(lowered.graph):
        return partial(better_artifact, stages, kept, timed, lowered, first)
    kept.keep(partial(stages.cache.matmul_choices.write, timed, frozenset()))
    return None


def better_artifact(
    stages: Stages, kept: CachedGraph, timed: str, lowered: LoweredGraph, first: Plan, sample: Timer
) -> Artifact | None:
    """The graph with the products generated that take less time so, where it can take the place of its ``first`` plan;
    the choice is kept by the key ``timed``."""
    config, name = stages.config, stages.captured.name
    end = time.perf_counter() + config.autotune_seconds / 2
    stages.products = _products(stages, lowered.graph, sample, end)
    if time.perf_counter() < end:
        # What there was no time for is tried by the next process.
        kept.keep(partial(stages.cache.matmul_choices.write, timed, stages.products))
    if not stages.products:
        return None
    # Who calls a backward knows which inputs its first plan writes over.
    own = replace(lowered, graph=replace(lowered.graph, donated=first.donated))
    plan = stages.schedule_kernels(stages.schedule(own))
    if not may_replace(plan, first):
        log.info("litz: %s keeps its plan until it is compiled anew: results would change place", name)
        return None
    key = kept.key(frozenset(first.donated), stages.demoted)
    jobs = stages.emit(plan)
    made = stages.artifact(lowered, plan, jobs, stages.compile(jobs))
    artifact = replace(made, key=key, seconds={}, uncacheable="")
    kept.keep_artifact(artifact, lowered)
    return artifact


def _products(stages: Stages, graph: LoopGraph, sample: Timer, end: float) -> frozenset[str]:
    """The products of a graph that take less time where they are generated, by what is timed until ``end``."""
    targets = stages.targets

    def planned(graph: LoopGraph, products: frozenset[str]) -> Plan:
        options = comparison_options(scheduler_options(stages.config, targets), products)
        return targets.scheduled(schedule(graph, PassContext(targets.capabilities()), options))

    def part(plan: Plan, config: Config) -> Loader:
        jobs = stages.emit(plan)
        alone = Artifact("part", plan, tuple(unit for unit, _ in jobs), stages.compile(jobs))
        return loader_of(alone, plan.name, targets, config)

    def loaded(plan: Plan) -> HostFunction:
        return part(plan, stages.config).call()

    def tuned(plan: Plan) -> HostFunction:
        # What is found is kept by the kernel, so that the whole graph begins with it.
        seconds = max(0.0, end - time.perf_counter()) / 2
        config = replace(stages.config, autotune_seconds=seconds, cuda_graphs=False)
        return with_tuning(part(plan, config), stages.cache, lambda: sample).call

    return faster_generated(graph, planned, loaded, tuned, sample, lambda: time.perf_counter() < end)
