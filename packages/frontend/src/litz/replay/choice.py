"""What of a plan is recorded: all of it, parts of it, or nothing, and why."""

from __future__ import annotations

from dataclasses import dataclass

from litz.replay.host_time import REPLAY, work_of
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


def chosen(plan: Plan, replay: float = REPLAY) -> Choice:
    """All of a plan where that can be recorded, else the parts of it that can; each where it takes the host no less
    than the ``replay`` seconds of a replay."""
    found = obstacle(plan)
    if found == ELSEWHERE:
        return Choice(plan, says=f"not replayed: {found}")
    if not found:
        work = work_of(plan.steps)
        if work.pays(replay):
            return Choice(plan, whole=True, says="replayed as a CUDA graph")
        return Choice(plan, says=f"not replayed: {work.says(replay)}")
    made = divided(plan, replay)
    reasons = "; ".join(made.reasons or (found,))
    if not made.parts:
        return Choice(plan, says=f"not replayed: {reasons}")
    graphs = "a CUDA graph" if len(made.parts) == 1 else f"{len(made.parts)} CUDA graphs"
    share = f"{made.recorded} of {made.steps} launches and calls"
    return Choice(made.plan, parts=made.parts, says=f"{share} replayed as {graphs}; between them: {reasons}")
