"""What of a plan is recorded: all of it, parts of it, or nothing, and why."""

from __future__ import annotations

from dataclasses import dataclass

from litz.replay.parts import divided
from litz.replay.plans import ELSEWHERE, obstacle
from litz_ir.plan.program import Plan


@dataclass(frozen=True, slots=True)
class Choice:
    """``plan`` is what runs; it is recorded as a whole where ``whole`` is true, and so are its subplans ``parts``.
    ``says`` is a line for people."""

    plan: Plan
    whole: bool = False
    parts: tuple[str, ...] = ()
    says: str = ""


def chosen(plan: Plan) -> Choice:
    """All of a plan where that can be recorded, else the parts of it that can."""
    found = obstacle(plan)
    if not found:
        return Choice(plan, whole=True, says="replayed as a CUDA graph")
    if found == ELSEWHERE:
        return Choice(plan, says=f"not replayed: {found}")
    made = divided(plan)
    if not made.parts:
        return Choice(plan, says=f"not replayed: {found}")
    graphs = "a CUDA graph" if len(made.parts) == 1 else f"{len(made.parts)} CUDA graphs"
    share = f"{made.recorded} of {made.steps} launches and calls"
    return Choice(
        made.plan,
        parts=made.parts,
        says=f"{share} replayed as {graphs}; between them: {'; '.join(made.reasons or (found,))}",
    )
