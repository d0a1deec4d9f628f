"""Which of the machine's GPUs those of a graph are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from litz_ir.device import Device
from litz_ir.errors import UnsupportedOperation

SegmentCall = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a graph by ordinal, the first one named first; none are named where it is on one.

    The first is the one that is current while the graph is loaded, and while it runs.
    """

    ordinals: tuple[int, ...] = ()

    def current(self, device: Device) -> AbstractContextManager[object]:
        """Makes a device of the graph current, where it is not the first."""
        return torch.cuda.device(self.ordinals[device.index]) if device.index else contextlib.nullcontext()

    def with_current(self, device: Device, call: SegmentCall) -> SegmentCall:
        """A call that makes a device of the graph current for itself, where it is not the first."""
        if not device.index:
            return call
        ordinal = self.ordinals[device.index]

        def run(*args: Any) -> None:
            with torch.cuda.device(ordinal):
                call(*args)

        return run

    def others(self) -> dict[int, torch.device]:
        """Those that are not the first, by their number in the graph."""
        return {k: torch.device("cuda", each) for k, each in enumerate(self.ordinals) if k}


ONE_GPU = Gpus()


def gpus_among(devices: Iterable[torch.device]) -> Gpus:
    """The GPUs of a graph whose tensors are on these devices.

    Raises ``UnsupportedOperation`` where their chips differ: kernels are made for one.
    """
    found = [each for each in devices if each.type == "cuda"]
    if len(found) < 2:
        return ONE_GPU
    if torch.cuda.is_available() and len(set(map(torch.cuda.get_device_capability, found))) > 1:
        raise UnsupportedOperation(
            f"{' and '.join(map(str, found))} are different chips",
            hint="break the graph where tensors go from one GPU to the next",
        )
    return Gpus(tuple(each.index for each in found))
