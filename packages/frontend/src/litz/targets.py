"""The targets that a compilation may use, found by entry point."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint

from litz.settings import Config
from litz_ir.device import Device
from litz_ir.plan import Launch, Plan, kernel_devices, kernels_in, plans_in
from litz_ir.target import Capabilities, SchedulingTarget, SourceUnit, Target, find_target, made_target


@dataclass(frozen=True, slots=True)
class TargetSet:
    """Targets by device kind, and what they can do."""

    by_kind: dict[str, Target]

    def __getitem__(self, device: Device) -> Target:
        return self.by_kind[device.kind]

    def capabilities(self) -> dict[Device, Capabilities]:
        """What every device at hand can do."""
        return {Device(kind): target.capabilities() for kind, target in self.by_kind.items()}

    def scheduled(self, plan: Plan) -> Plan:
        """The plan with what each target decides about its kernels. Raises ``CodegenError``."""
        for target in self.by_kind.values():
            plan = scheduled_by(target, plan)
        return plan


def targets_for(devices: Iterable[str], config: Config) -> TargetSet:
    """The targets of the device kinds that a graph uses, with the compiler that ``config`` names; raises
    ``TargetError`` naming a missing one."""
    options = {"compiler": config.compiler}
    return TargetSet({kind: made_target(_found(kind), options) for kind in dict.fromkeys(devices)})


@functools.cache
def _found(kind: str) -> EntryPoint:
    """What is installed stays while the process lives. The target itself does not: a GPU's is that of one device."""
    return find_target(kind)


def scheduled_by(target: Target, plan: Plan) -> Plan:
    """The plan with the schedules that a target decides, if it decides any. Raises ``CodegenError``."""
    return target.schedule(plan) if isinstance(target, SchedulingTarget) else plan


def launches_on(kind: str, plan: Plan) -> Plan:
    """A plan as the target of a ``kind`` of devices sees it: the launches there, of its subplans too, nothing else."""
    devices = kernel_devices(plan)
    kernels = tuple(each for each in kernels_in(plan) if any(at.kind == kind for at in devices[each.name]))
    names = {kernel.name for kernel in kernels}
    steps = (step for each in plans_in(plan) for step in each.steps)
    launches = tuple(step for step in steps if isinstance(step, Launch) and step.kernel in names)
    return replace(plan, device=Device(kind), kernels=kernels, steps=launches, subplans=())


def devices_of(units: Sequence[SourceUnit], plan: Plan) -> list[tuple[Device, ...]]:
    """The devices, all of one kind, that the kernels of each unit are launched on."""
    devices = kernel_devices(plan)
    return [tuple(dict.fromkeys(at for name in unit.kernels for at in devices[name])) for unit in units]
