"""Division of a plan into the parts that are captured as CUDA graphs; loaded where the option is on."""

from __future__ import annotations

import torch

from litz.cuda_graphs.eligibility import PLAIN, mutates, overload
from litz.reports.failures import Failures
from litz_ir.passes import PassContext, Pipeline
from litz_ir.plan import Plan
from litz_scheduler import replay_passes
from litz_scheduler.graph_partition import GraphPartition, Routines

_UNSAFE = "cudagraph_unsafe"
"""Tag of torch's operators that read values on the host, or wait for the device."""


def _is_unsafe(target: str) -> bool:
    """Report whether an operator has the tag, or is unknown to torch and litz."""
    found = overload(target)
    if found is None:
        return target not in PLAIN
    return getattr(torch.Tag, _UNSAFE, None) in found.tags


ROUTINES = Routines(_is_unsafe, mutates)
"""Properties of the routines that plans call, for graph partition."""


def partition_of(plan: Plan, context: PassContext, failures: Failures, consequence: str) -> GraphPartition:
    """Return the parts of a plan to capture; none where that cannot be decided, with a report that says the
    ``consequence``."""
    passes = Pipeline[Plan, GraphPartition]("replay", replay_passes(ROUTINES))
    none = GraphPartition(plan, summary=consequence)
    return failures.attempt("replay", lambda: passes.apply(plan, context), none, consequence)
