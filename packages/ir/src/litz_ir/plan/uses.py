"""Which memory the steps of a plan touch."""

from __future__ import annotations

from collections.abc import Mapping

from litz_ir.loops.nodes import references
from litz_ir.plan.program import CallStep, Check, Define, Launch, Placement, RegionStep, Step
from litz_ir.scalar.expr import Expr, loads


def touched_by(step: Step) -> tuple[str, ...]:
    """The buffers that a step touches, results included."""
    match step:
        case Launch():
            return step.buffers
        case CallStep():
            named = (value for _, value in step.attributes)
            used = [name for argument in (*step.arguments, *named) for name in references(argument)]
            return (*used, *(name for name in step.results if name is not None))
        case RegionStep():
            return (*(name for argument in step.arguments for name in references(argument)), *step.results)
        case Check():
            return tuple(load.buffer for load in loads(step.condition))
        case Define():
            if isinstance(step.source, Expr):
                return tuple(load.buffer for load in loads(step.source))
            return (step.source[1],)
    return ()


def root(name: str, placements: Mapping[str, Placement]) -> str:
    """The buffer whose memory ``name`` is in the end."""
    while True:
        placement = placements.get(name)
        if placement is None or placement.base is None:
            return name
        name = placement.base
