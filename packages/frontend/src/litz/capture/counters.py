"""Counters of graphs that litz compiles, among Dynamo's: ``torch._dynamo.utils.counters["litz"]``."""

from __future__ import annotations

import sys

from litz.loading import Compiled
from litz_ir.plan import CallStep, Launch, plans_in

_DYNAMO = "torch._dynamo.utils"
"""Module with the counters; a program that loads saved graphs alone does not import it."""


def count_graph(compiled: Compiled) -> None:
    """Count a graph that was compiled, or found in the cache, where Dynamo is imported.

    ``graphs`` and ``aten_graphs`` (those that run as ATen operations), ``cache_hits`` and ``cache_misses``; of the
    graphs' plans ``kernels``, ``launches``, ``calls`` of library routines and ``fused_operations``, those that share a
    kernel with another; ``fallbacks``, operations that run as ATen kernels since they could not be generated; and
    ``milliseconds`` by stage, as ``milliseconds.lower``.
    """
    dynamo = sys.modules.get(_DYNAMO)
    if dynamo is None:
        return
    own, artifact = dynamo.counters["litz"], compiled.artifact
    own["graphs"] += 1
    if artifact is None:
        own["aten_graphs"] += 1
        return
    own["cache_hits" if artifact.cached else "cache_misses"] += 1
    own["fallbacks"] += len(artifact.fallbacks)
    if not artifact.cached:
        for stage, seconds in artifact.seconds.items():
            own[f"milliseconds.{stage}"] += round(1e3 * seconds)
    kernels: set[str] = set()
    for plan in plans_in(artifact.plan):
        kernels.update(each.name for each in plan.kernels)
        for step in plan.steps:
            if isinstance(step, Launch):
                own["launches"] += 1
                operations = len({each.operation for each in step.origins})
                own["fused_operations"] += operations if operations > 1 else 0
            elif isinstance(step, CallStep):
                own["calls"] += 1
    own["kernels"] += len(kernels)
