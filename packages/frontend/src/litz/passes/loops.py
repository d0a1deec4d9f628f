"""The run of users' passes over loop graphs and plans, inside the scheduler's list of passes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from litz.passes import Passes
from litz.passes.graphs import DISABLE, run_decision
from litz_ir.errors import LitzError, UserPassError
from litz_ir.passes import PassContext
from litz_ir.plan import Plan
from litz_ir.verifier import verify
from litz_scheduler import PassList

LAST_OF_PLANS = "kernel-support"
"""Pass before which users' passes over plans run."""


@dataclass(frozen=True, slots=True)
class VerifiedPass:
    """A user's pass whose result is verified, and whose run is a decision."""

    item: Any
    """The pass, with ``name``, ``ulp`` and ``apply``."""

    stage: str
    """Its stage: ``loops`` or ``plan``."""

    @property
    def name(self) -> str:
        """Name of the pass."""
        return str(self.item.name)

    @property
    def ulp(self) -> int:
        """Bound by which results may change, in units in the last place."""
        return int(self.item.ulp)

    def apply(self, data: Any, context: PassContext) -> Any:
        """Return the verified result; raise :class:`~litz_ir.errors.UserPassError` where the pass or that fails."""
        try:
            found = self.item.apply(data, context)
            if type(found) is not type(data):
                raise TypeError(f"it returned a {type(found).__name__} for a {type(data).__name__}")
            verify(found)
        except Exception as error:
            said = error.message if isinstance(error, LitzError) else f"{type(error).__name__}: {error}"
            node = error.node if isinstance(error, LitzError) else ""
            raise UserPassError(
                f"the pass {self.name} of the stage {self.stage} failed: {said}", node=node, hint=DISABLE
            ) from error
        decision = run_decision(self.stage, self.name, found != data)
        context.decide(decision)
        # A plan has the decisions that were made before it.
        return replace(found, decisions=(*found.decisions, decision)) if isinstance(found, Plan) else found


def with_users_passes(passes: PassList, users: Passes) -> PassList:
    """Return the scheduler's passes with those of users; raise ``ConfigError`` for names that clash or are unknown."""
    first = passes.graph[0].name
    for stage, items, default in (("loops", users.loops, first), ("plan", users.plan, LAST_OF_PLANS)):
        for item in items:
            before = str(getattr(item, "before", "") or default)
            passes = passes.before(before, VerifiedPass(item, stage))
    return passes
