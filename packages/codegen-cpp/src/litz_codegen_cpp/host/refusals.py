"""Refusals: needs of a plan that a program without Python and torch cannot meet, each with its reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from litz_codegen_cpp.host.routines import ROUTINES
from litz_ir.errors import CodegenError
from litz_ir.loops import ObjectInput, Ref, ScalarInput
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.plan import CallStep, CheckStep, DefineStep, Plan, RegionStep, plans_in, written_buffers
from litz_ir.scalar import Expr

REGIONS = ("frozen", "invoke")
"""Kinds of regions that a host program runs."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that keeps a plan from a host program."""

    call: str
    """The call, region or value, by the plan's name for it, such as ``aten.sort.stable``."""
    reason: str
    """The reason, as a sentence without a full stop."""
    origin: Origin = UNKNOWN
    """Source of the operation in the user's program."""


def refusals(plan: Plan, weights: Collection[str] = ()) -> tuple[Refusal, ...]:
    """Return what a host program of ``plan`` cannot have, each call once; nothing for a plan that it can run.

    ``weights`` are as in :func:`~litz_codegen_cpp.host.emit_host`.
    """
    found: dict[tuple[str, str], Refusal] = {}
    for name in sorted(written_buffers(plan, lambda target: False) & set(weights)):
        found[name, ""] = Refusal(name, "a call overwrites the weight, and calls share their weights")
    for each in plans_in(plan):
        for refusal in _refused(each):
            found.setdefault((refusal.call, refusal.reason), refusal)
    return tuple(found.values())


def require_runnable(plan: Plan, weights: Collection[str] = ()) -> None:
    """Raise :class:`CodegenError`, which names every refusal, unless a host program can run ``plan``."""
    found = refusals(plan, weights)
    if found:
        raise CodegenError(
            "no host program: " + "; ".join(f"{each.call}: {each.reason}" for each in found),
            node=plan.name,
            origin=found[0].origin,
            hint="run the graph in Python, or write it without these calls",
        )


def _refused(plan: Plan) -> Iterator[Refusal]:
    if plan.device.kind != "cpu":
        yield Refusal(plan.name, f"it is for the device {plan.device.kind}, and host programs run on CPUs")
    for item in plan.inputs:
        if isinstance(item, ObjectInput):
            yield Refusal(item.name, f"the input is a {item.kind}, which C has not")
    for output in plan.outputs:
        if not isinstance(output, Ref):
            yield Refusal(plan.name, f"the output {output} is no tensor")
    bound = {item.symbol for item in plan.inputs if isinstance(item, ScalarInput)}
    for step in plan.steps:
        match step:
            case CallStep():
                yield from _refused_call(plan, step)
            case RegionStep() if step.kind not in REGIONS:
                yield Refusal(f"region.{step.kind}", "host programs have no such region", step.origin)
            case CheckStep():
                yield Refusal("check", "host programs evaluate no assertions about values", step.origin)
            case DefineStep(source=Expr()):
                yield Refusal(step.symbol, "its value is known only when values have been computed")
            case DefineStep(source=(_, str() as of, _)) if step.symbol not in bound and not _is_input(
                plan, of
            ):
                yield Refusal(step.symbol, "it is the size of a call's result")


def _is_input(plan: Plan, name: str) -> bool:
    return any(item.name == name for item in (*plan.inputs, *plan.constants))


def _refused_call(plan: Plan, step: CallStep) -> Iterator[Refusal]:
    routine = ROUTINES.get(step.target)
    if routine is None:
        yield Refusal(step.target, "the C runtime has no such routine", step.origin)
        return
    reason = routine.refuses(plan, step)
    if reason:
        yield Refusal(step.target, reason, step.origin)
