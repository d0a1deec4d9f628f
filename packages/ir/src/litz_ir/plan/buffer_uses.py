"""Which memory the steps of a plan touch, where that is, and which of it they may write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from litz_ir.device import Device
from litz_ir.loops.nodes import references
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import (
    CallStep,
    CheckStep,
    DefineStep,
    Launch,
    Placement,
    Plan,
    RegionStep,
    Step,
    kernels_in,
    plans_in,
)
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
        case CheckStep():
            return tuple(load.buffer for load in loads(step.condition))
        case DefineStep():
            if isinstance(step.source, Expr):
                return tuple(load.buffer for load in loads(step.source))
            return (step.source[1],)
    return ()


def written_by(
    step: Step, kernels: Mapping[str, Kernel], mutates: Callable[[str], bool] = lambda target: True
) -> tuple[str, ...]:
    """The buffers that a step may write, its results left out. Of what it gives to a routine or to control flow a plan
    does not say which, so it is all of that, but for the routines of which ``mutates`` says that they write to none."""
    match step:
        case Launch():
            parameters = kernels[step.kernel].parameters
            return tuple(b for p, b in zip(parameters, step.buffers, strict=True) if p.access != "in")
        case CallStep() if mutates(step.target):
            return tuple(references((*step.arguments, *(value for _, value in step.attributes))))
        case RegionStep():
            return tuple(references(step.arguments))
    return ()


def written_buffers(plan: Plan, mutates: Callable[[str], bool] = lambda target: True) -> frozenset[str]:
    """The buffers, each at the end of its chain of bases, that :func:`written_by` gives for the steps of a plan. Of
    what is given to a subplan that is run as it is, those that its own steps write."""
    kernels, placements = {kernel.name: kernel for kernel in plan.kernels}, dict(plan.buffers)
    names: list[str] = []
    for step in plan.steps:
        if isinstance(step, RegionStep) and step.kind in ("invoke", "frozen"):
            inner = plan.subplan(step.plans[0])
            changed = written_buffers(inner, mutates)
            given = zip(step.arguments, inner.inputs, strict=True)
            names += [
                name for argument, item in given if item.name in changed for name in references(argument)
            ]
        else:
            names += written_by(step, kernels, mutates)
    return frozenset(memory_root(name, placements) for name in names)


def alias_chain(name: str, placements: Mapping[str, Placement]) -> Iterator[str]:
    """A buffer, what it is a view of, and so on."""
    at: str | None = name
    while at is not None:
        yield at
        placement = placements.get(at)
        at = None if placement is None else placement.base


def memory_root(name: str, placements: Mapping[str, Placement]) -> str:
    """The buffer whose memory ``name`` is in the end."""
    *_, last = alias_chain(name, placements)
    return last


def launched_on(launch: Launch, placements: Mapping[str, Placement]) -> Device:
    """The device that a launch runs on: that of its buffers."""
    return placements[launch.buffers[0]].type.device


def kernel_devices(plan: Plan) -> dict[str, tuple[Device, ...]]:
    """By name, the devices that the kernels of a plan and of all below it are launched on: all of one kind."""
    found: dict[str, dict[Device, None]] = {kernel.name: {} for kernel in kernels_in(plan)}
    for each in plans_in(plan):
        placements = dict(each.buffers)
        for step in each.steps:
            if isinstance(step, Launch):
                found[step.kernel][launched_on(step, placements)] = None
    return {name: tuple(devices) for name, devices in found.items()}
