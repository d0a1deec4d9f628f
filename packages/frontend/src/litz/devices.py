"""torch's kinds of devices: its GPUs, with torch's functions for them, and every other kind that torch knows.

No other module of the frontend names the kind of torch's GPUs, or calls their functions under another name. A device of
another kind, such as one that a package registers with torch as PrivateUse1, needs no name here: it is the accelerator
that ``torch.accelerator`` is about (``docs/devices.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch import accelerator
from torch import cuda as gpu

from litz_ir.errors import TargetError

__all__ = [
    "CPU_KIND",
    "GPU",
    "DeviceFunctions",
    "functions_of",
    "gpu",
    "is_accelerator",
    "is_gpu",
    "other_accelerator",
]

CPU_KIND = "cpu"
"""Kind of the CPU, the one device that is always there, and the only one that has no current device."""

GPU = "cuda"
"""Kind of the devices that are GPUs, as torch and the entry point of their target name it."""


def is_gpu(kind: str) -> bool:
    """Report whether devices of a kind are torch's GPUs, which have CUDA's streams, events and graphs."""
    return kind == GPU


def is_accelerator(kind: str) -> bool:
    """Report whether devices of a kind are numbered, with one of them current: all but the CPU."""
    return kind != CPU_KIND


@dataclass(frozen=True, slots=True)
class DeviceFunctions:
    """torch's functions for the accelerators of one kind."""

    current: Callable[[], int]
    """Returns the ordinal of the current device."""

    device: Callable[[int], AbstractContextManager[object]]
    """Returns a context in which a device is current, by ordinal."""

    synchronize: Callable[[], None]
    """Waits until the current device has done all its work."""


def functions_of(kind: str) -> DeviceFunctions:
    """Return torch's functions for the accelerators of a kind.

    Raises ``TargetError`` for a kind that torch does not call its accelerator here.
    """
    if is_gpu(kind):
        return DeviceFunctions(gpu.current_device, gpu.device, gpu.synchronize)
    if other_accelerator() != kind:
        raise TargetError(
            f"torch has no functions for devices of kind {kind}: its accelerator is {other_accelerator() or 'none'}",
            hint="register the device's guard and hooks with torch, see docs/devices.md",
        )
    return DeviceFunctions(
        accelerator.current_device_index, accelerator.device_index, accelerator.synchronize
    )


def other_accelerator() -> str | None:
    """Return the kind of torch's accelerator where it is not its GPUs; ``None`` where these are, or there is none."""
    found = accelerator.current_accelerator(check_available=True)
    return None if found is None or is_gpu(found.type) else found.type
