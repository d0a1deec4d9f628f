"""The targets of a compilation, found by entry point."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from litz.devices import is_gpu
from litz.settings import Config
from litz_ir.device import Device
from litz_ir.plan import Plan, kernel_devices
from litz_ir.target import (
    Capabilities,
    PreparedTarget,
    SchedulingTarget,
    SourceUnit,
    Target,
    find_target,
    made_target,
)


@dataclass(frozen=True, slots=True)
class TargetSet:
    """Targets by device kind."""

    by_kind: dict[str, Target]
    """Target of each device kind, such as ``cpu``."""

    def __getitem__(self, device: Device) -> Target:
        return self.by_kind[device.kind]

    def capabilities(self) -> dict[Device, Capabilities]:
        """Return the capabilities of the first device of each kind."""
        return {Device(kind): target.capabilities() for kind, target in self.by_kind.items()}

    def has_gpu(self) -> bool:
        """Report whether a target's device is a GPU."""
        return any(known.is_gpu for known in self.capabilities().values())

    def prepare(self, limit: int) -> int:
        """Start the compiler processes that targets have, and return how many units can be compiled in parallel, by
        the last of them; 0 without any. ``limit`` is the most that the options allow, 0 where they do not say."""
        count = 0
        for target in self.by_kind.values():
            if isinstance(target, PreparedTarget) and limit != 1:
                known = target.prepare()
                count = min(known, limit) if limit else known
        return count

    def scheduled(self, plan: Plan) -> Plan:
        """Return the plan with the schedules that every target decides; raise ``CodegenError``."""
        for target in self.by_kind.values():
            plan = scheduled_by(target, plan)
        return plan


def targets_for(devices: Iterable[str], config: Config) -> TargetSet:
    """Return the targets of a graph's device kinds, with the compiler, instruction set and chip that ``config`` names.

    Raises ``TargetError``, which names a kind without an installed target.
    """
    options = {"compiler": config.compiler, "isa": config.isa, "chip": config.chip}
    return TargetSet({kind: made_target(_found(kind), options) for kind in dict.fromkeys(devices)})


@functools.cache
def _found(kind: str) -> EntryPoint:
    """Return the entry point of a kind, cached: installed packages do not change. Targets do: a GPU's is of one
    device."""
    return find_target(kind)


def scheduled_by(target: Target, plan: Plan) -> Plan:
    """Return the plan with the schedules that a target decides, if it decides any; raise ``CodegenError``."""
    return target.schedule(plan) if isinstance(target, SchedulingTarget) else plan


def devices_of(units: Sequence[SourceUnit], plan: Plan) -> list[tuple[Device, ...]]:
    """Return the devices, all of one kind, that each unit's kernels are launched on.

    Units without kernels of the plan, such as those of ``CopyingTarget``, are for all GPUs that the plan uses.
    """
    devices = kernel_devices(plan)
    gpus = dict.fromkeys(at for known in devices.values() for at in known if is_gpu(at.kind))
    return [
        tuple(dict.fromkeys(at for name in unit.kernels for at in devices[name]) if unit.kernels else gpus)
        for unit in units
    ]
