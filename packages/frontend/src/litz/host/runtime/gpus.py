"""The machine's GPUs that a graph is on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from litz.devices import GPU, gpu, is_gpu
from litz_ir.device import Device
from litz_ir.errors import UnsupportedOperation

SegmentCall = Callable[..., None]
"""Function that runs a segment, given addresses and symbol values."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a graph, by ordinal, its first one first; none where the graph is on a single GPU.

    The first GPU is the current device while the graph is loaded and while it runs.
    """

    ordinals: tuple[int, ...] = ()
    """Ordinals of the GPUs as torch counts them."""

    def current(self, device: Device) -> AbstractContextManager[object]:
        """Return a context in which a device of the graph is current; without effect for the first."""
        return gpu.device(self.ordinals[device.index]) if device.index else contextlib.nullcontext()

    def with_current(self, device: Device, call: SegmentCall) -> SegmentCall:
        """Return a call that makes a device of the graph current; the call itself for the first."""
        if not device.index:
            return call
        ordinal = self.ordinals[device.index]

        def run(*args: Any) -> None:
            with gpu.device(ordinal):
                call(*args)

        return run

    def others(self) -> dict[int, torch.device]:
        """Return all but the first GPU, by their number in the graph."""
        return {k: torch.device(GPU, each) for k, each in enumerate(self.ordinals) if k}


ONE_GPU = Gpus()
"""The value for graphs on a single GPU, or none."""


def gpus_among(devices: Iterable[torch.device]) -> Gpus:
    """Return the GPUs among a graph's devices.

    Raises ``UnsupportedOperation`` where their compute capabilities differ: kernels are compiled for one.
    """
    found = [each for each in devices if is_gpu(each.type)]
    if len(found) < 2:
        return ONE_GPU
    if gpu.is_available() and len(set(map(gpu.get_device_capability, found))) > 1:
        raise UnsupportedOperation(
            f"{' and '.join(map(str, found))} have different compute capabilities",
            hint="break the graph where tensors go from one GPU to the next",
        )
    return Gpus(tuple(each.index for each in found))
