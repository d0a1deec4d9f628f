"""Autotuning around the stages: matmuls are generated or called, whichever is faster."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial

from litz.artifact import Artifact
from litz.compilation.cached import CachedGraph
from litz.host.runtime.load import HostFunction
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
    stages: Stages, cached: CachedGraph, matmul_key: str, lowered: LoweredGraph, first: Plan
) -> Better | None:
    """Return the search for a faster plan than ``first``, to run during calls; ``None`` for a graph without matmuls.

    The cache then stores under ``matmul_key`` that there is nothing to generate.
    """
    if may_be_generated(lowered.graph):
        return partial(_better_artifact, stages, cached, matmul_key, lowered, first)
    cached.store(partial(stages.cache.matmul_choices.write, matmul_key, frozenset()))
    return None


def _better_artifact(
    stages: Stages, cached: CachedGraph, matmul_key: str, lowered: LoweredGraph, first: Plan, sample: Timer
) -> Artifact | None:
    """Return the graph with its faster matmuls generated, where that can replace its ``first`` plan; else ``None``.

    The choice is cached under ``matmul_key``.
    """
    config, name = stages.config, stages.captured.name
    end = time.perf_counter() + config.autotune_seconds / 2
    stages.generated = _faster_matmuls(stages, lowered.graph, sample, end)
    if time.perf_counter() < end:
        # Otherwise the next process times the rest.
        cached.store(partial(stages.cache.matmul_choices.write, matmul_key, stages.generated))
    if not stages.generated:
        return None
    # The caller of a backward copies the inputs that its first plan reuses.
    own = replace(lowered, graph=replace(lowered.graph, donated=first.donated))
    plan = stages.schedule_kernels(stages.schedule(own))
    if not may_replace(plan, first):
        log.info(
            "litz: %s keeps its plan until it is recompiled: its results would change layout or memory", name
        )
        return None
    key = cached.key(frozenset(first.donated), stages.demoted)
    jobs = stages.emit(plan)
    made = stages.artifact(lowered, plan, jobs, stages.compile(jobs))
    artifact = replace(made, key=key, seconds={}, uncacheable="")
    cached.store_artifact(artifact, lowered)
    return artifact


def _faster_matmuls(stages: Stages, graph: LoopGraph, sample: Timer, end: float) -> frozenset[str]:
    """Return the matmuls of a graph that are faster when generated, by timing until ``end``."""
    targets = stages.targets

    def planned(graph: LoopGraph, generated: frozenset[str]) -> Plan:
        options = comparison_options(scheduler_options(stages.config, targets), generated)
        return targets.scheduled(schedule(graph, PassContext(targets.capabilities()), options, verified=True))

    def loader(plan: Plan, config: Config) -> Loader:
        jobs = stages.emit(plan)
        artifact = Artifact("matmul", plan, tuple(unit for unit, _ in jobs), stages.compile(jobs))
        return loader_of(artifact, plan.name, targets, config)

    def loaded(plan: Plan) -> HostFunction:
        return loader(plan, stages.config).call()

    def tuned(plan: Plan) -> HostFunction:
        # Tuned schedules are cached by kernel, so the whole graph starts with them.
        seconds = max(0.0, end - time.perf_counter()) / 2
        config = replace(stages.config, autotune_seconds=seconds, cuda_graphs=False)
        return with_tuning(loader(plan, config), stages.cache, lambda: sample).call

    return faster_generated(graph, planned, loaded, tuned, sample, lambda: time.perf_counter() < end)
