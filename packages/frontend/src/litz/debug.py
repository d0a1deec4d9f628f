"""What runs between passes when the options ask for it."""

from __future__ import annotations

from litz.settings import Config
from litz_ir.fused.group import FusedGraph
from litz_ir.fused.verify import verify_fused
from litz_ir.loops.nodes import LoopGraph
from litz_ir.loops.verify import verify_graph
from litz_ir.passes.check import check_hook
from litz_ir.passes.pipeline import Hook
from litz_ir.plan.program import Plan
from litz_ir.plan.verify import verify_plan


def hooks_for(config: Config) -> tuple[Hook, ...]:
    """The hooks that ``config`` asks for: the verifiers, the reference interpreter."""
    hooks: list[Hook] = []
    if config.verify:
        hooks.append(verify)
    if config.check:
        hooks.append(check_hook)
    return tuple(hooks)


def verify(name: str, before: object, after: object) -> None:
    """Check the invariants of what a pass made; raises ``VerifyError``."""
    match after:
        case LoopGraph():
            verify_graph(after)
        case FusedGraph():
            verify_fused(after)
        case Plan():
            verify_plan(after)
