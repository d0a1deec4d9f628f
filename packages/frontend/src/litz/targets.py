"""The targets that a compilation may use, found by entry point."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from litz.settings import Config
from litz_ir.device import Device
from litz_ir.target.capabilities import Capabilities
from litz_ir.target.protocol import Target
from litz_ir.target.registry import find_target, made_target


@dataclass(frozen=True, slots=True)
class TargetSet:
    """Targets by device kind, and what they can do."""

    by_kind: dict[str, Target]

    def __getitem__(self, device: Device) -> Target:
        return self.by_kind[device.kind]

    def capabilities(self) -> dict[Device, Capabilities]:
        """What every device at hand can do."""
        return {Device(kind): target.capabilities() for kind, target in self.by_kind.items()}


def targets_for(devices: Iterable[str], config: Config) -> TargetSet:
    """The targets of the device kinds that a graph uses, with the compiler that ``config`` names; raises
    ``TargetError`` naming a missing one."""
    options = {"compiler": config.compiler}
    return TargetSet({kind: made_target(_found(kind), options) for kind in dict.fromkeys(devices)})


@functools.cache
def _found(kind: str) -> EntryPoint:
    """What is installed stays while the process lives. The target itself does not: a GPU's is that of one device."""
    return find_target(kind)
