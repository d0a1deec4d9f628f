"""torch's module of the device, ``torch.toy``: functions by the names that torch looks for in such a module."""

from __future__ import annotations

import torch
from torch.accelerator import current_device_index as current_device
from torch.accelerator import current_stream, set_stream, synchronize
from torch.accelerator import set_device_index as set_device

from litz_device_toy._C import device_count

__all__ = [
    "current_device", "current_stream", "device", "device_count", "get_rng_state",
    "is_available", "is_initialized", "manual_seed_all", "set_device", "set_rng_state", "set_stream", "synchronize",
]  # fmt: skip


class device(torch.accelerator.device_index):  # by torch's name
    """A context in which a device is current, given by ordinal or otherwise."""

    def __init__(self, device: torch.device | str | int | None) -> None:
        super().__init__(torch.device(device).index if isinstance(device, torch.device | str) else device)


def is_available() -> bool:
    """Return True: every machine has the device."""
    return True


def is_initialized() -> bool:
    """Return True: the device needs no start."""
    return True


def _is_in_bad_fork() -> bool:
    """Return False: the device's memory is the process's own, and a fork copies it."""
    return False


def manual_seed_all(seed: int) -> None:
    """Do nothing: operators that draw random numbers run on the CPU, with its generator, which torch has seeded."""


def get_rng_state(device: object = None) -> torch.Tensor:
    """Return the state of the CPU's generator, which the device's operators use."""
    return torch.random.get_rng_state()


def set_rng_state(state: torch.Tensor, device: object = None) -> None:
    """Set the state of the CPU's generator, which the device's operators use."""
    torch.random.set_rng_state(state)
