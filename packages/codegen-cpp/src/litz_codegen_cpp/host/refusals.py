"""Refusals: needs of a plan that a program without Python and torch cannot meet, each with its reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from litz_codegen_cpp.host.late import is_late, late_symbols
from litz_codegen_cpp.host.operator_calls import is_operator, refuses_operator, writes_arguments
from litz_codegen_cpp.host.routines.table import ROUTINES
from litz_ir.errors import CodegenError
from litz_ir.loops import ObjectInput, Ref
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.plan import CallStep, DefineStep, Plan, RegionStep, plans_in, written_buffers

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
    for name in sorted(written_buffers(plan, writes_arguments) & set(weights)):
        found[name, ""] = Refusal(name, "a call overwrites the weight, and calls share their weights")
    for each in plans_in(plan):
        if each is not plan and _has_late_results(each):
            found[each.name, ""] = Refusal(
                each.name, "a result of the region is a number, or its size depends on values"
            )
        for refusal in _refused(each):
            found.setdefault((refusal.call, refusal.reason), refusal)
    return tuple(found.values())


def _has_late_results(plan: Plan) -> bool:
    late = late_symbols(plan)
    types = dict(plan.buffers)
    return any(
        not isinstance(each, Ref) or (each.name in types and is_late(types[each.name].type, late))
        for each in plan.outputs
    )


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
        if output is None or isinstance(output, complex):
            yield Refusal(plan.name, f"the output {output} is neither a tensor nor a number")
    late = late_symbols(plan)
    own = {
        name
        for step in plan.steps
        if isinstance(step, RegionStep)
        or (isinstance(step, CallStep) and step.target in ROUTINES and not is_operator(plan, step))
        for name in step.results
    }
    for step in plan.steps:
        match step:
            case CallStep():
                yield from _refused_call(plan, step)
            case RegionStep() if step.kind not in REGIONS:
                yield Refusal(f"region.{step.kind}", "host programs have no such region", step.origin)
            case DefineStep(source=(_, str() as of, _)) if step.symbol in late and of in own:
                yield Refusal(step.symbol, "it is the size of a result that the program makes itself")


def _refused_call(plan: Plan, step: CallStep) -> Iterator[Refusal]:
    if step.target in ROUTINES and not ROUTINES[step.target].refuses(plan, step):
        return
    reason = refuses_operator(plan, step)
    if reason:
        yield Refusal(step.target, reason, step.origin)
