"""What runs between passes when the options ask for it."""

from __future__ import annotations

from litz.settings import Config
from litz_ir.fused import FusedGraph, verify_fused
from litz_ir.loops import LoopGraph, verify_graph
from litz_ir.passes import Hook, check_hook
from litz_ir.plan import Plan, verify_plan


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
