"""The buffers that each step of a plan reads and writes, and the devices that it runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

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
from litz_ir.scalar.expr import loads
from litz_ir.scalar.node import Expr

_MATMULS_AND_CONVOLUTIONS = frozenset(
    {
        "linear", "convolution", "convolution_relu",
        "aten.mm.default", "aten.mm.dtype", "aten.bmm.default", "aten.bmm.dtype",
        "aten.addmm.default", "aten.addmm.dtype", "aten.baddbmm.default",
        "aten.convolution.default", "aten.convolution_backward.default",
    }
)  # fmt: skip
"""Routines whose results are each in newly allocated memory, which nothing else refers to."""


def new_results(step: Step) -> tuple[str, ...]:
    """The results of a step that are each in newly allocated memory, which a kernel may overwrite."""
    if isinstance(step, CallStep) and step.target in _MATMULS_AND_CONVOLUTIONS:
        return tuple(name for name in step.results if name is not None and name not in step.pairs)
    return ()


def touched_by(step: Step) -> tuple[str, ...]:
    """The buffers that a step reads or writes, results included."""
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
    """The buffers that a step may write, except its results.

    A plan does not say which arguments a routine or a region writes, so all of them count. ``mutates`` returns
    False for the routines that write to no argument.
    """
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
    """The memory roots of all buffers that :func:`written_by` gives for the steps of a plan.

    Of the arguments of an ``invoke`` or ``frozen`` region, only those that the subplan writes count.
    """
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


def alias_path(name: str, placements: Mapping[str, Placement]) -> Iterator[str]:
    """Yield a buffer, the base whose memory it shares, that base's own base, and so on."""
    at: str | None = name
    while at is not None:
        yield at
        placement = placements.get(at)
        at = None if placement is None else placement.base


def memory_root(name: str, placements: Mapping[str, Placement]) -> str:
    """The last buffer of the alias chain of ``name``: the one that has memory of its own."""
    *_, last = alias_path(name, placements)
    return last


def launched_on(launch: Launch, placements: Mapping[str, Placement]) -> Device:
    """The device that a launch runs on, which is that of its buffers."""
    return placements[launch.buffers[0]].type.device


def kernel_devices(plan: Plan) -> dict[str, tuple[Device, ...]]:
    """Devices that each kernel of a plan and its subplans is launched on, by the kernel's name.

    A verified plan launches a kernel on devices of one kind.
    """
    found: dict[str, dict[Device, None]] = {kernel.name: {} for kernel in kernels_in(plan)}
    for each in plans_in(plan):
        placements = dict(each.buffers)
        for step in each.steps:
            if isinstance(step, Launch):
                found[step.kernel][launched_on(step, placements)] = None
    return {name: tuple(devices) for name, devices in found.items()}


def launches_on(kind: str, plan: Plan) -> Plan:
    """A plan with the launches on one ``kind`` of devices alone, those of subplans included."""
    devices = kernel_devices(plan)
    kernels = tuple(each for each in kernels_in(plan) if any(at.kind == kind for at in devices[each.name]))
    names = {kernel.name for kernel in kernels}
    steps = (step for each in plans_in(plan) for step in each.steps)
    launches = tuple(step for step in steps if isinstance(step, Launch) and step.kernel in names)
    return replace(plan, device=Device(kind), kernels=kernels, steps=launches, subplans=())
