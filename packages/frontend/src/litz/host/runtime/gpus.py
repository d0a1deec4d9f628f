"""The machine's GPUs, or other accelerators, that a graph is on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from litz.devices import GPU, functions_of, gpu, is_accelerator, is_gpu
from litz_ir.device import Device
from litz_ir.errors import UnsupportedOperation

SegmentCall = Callable[..., None]
"""Function that runs a segment, given addresses and symbol values."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a graph, or its accelerators of another kind, its first one first; none where it is on a single one.

    The first GPU is the current device while the graph is loaded and while it runs.
    """

    ordinals: tuple[int, ...] = ()
    """Ordinals of the GPUs as torch counts them."""

    kind: str = GPU
    """Kind of all of them."""

    def current(self, device: Device) -> AbstractContextManager[object]:
        """Return a context in which a device of the graph is current; without effect for the first."""
        if not device.index:
            return contextlib.nullcontext()
        return functions_of(self.kind).device(self.ordinals[device.index])

    def with_current(self, device: Device, call: SegmentCall) -> SegmentCall:
        """Return a call that makes a device of the graph current; the call itself for the first."""
        if not device.index:
            return call
        ordinal, current = self.ordinals[device.index], functions_of(self.kind).device

        def run(*args: Any) -> None:
            with current(ordinal):
                call(*args)

        return run

    def others(self) -> dict[int, torch.device]:
        """Return all but the first GPU, by their number in the graph."""
        return {k: torch.device(self.kind, each) for k, each in enumerate(self.ordinals) if k}


ONE_GPU = Gpus()
"""The value for graphs on a single GPU, or none."""


def gpus_among(devices: Iterable[torch.device]) -> Gpus:
    """Return the GPUs among a graph's devices, or its accelerators of another kind.

    Raises ``UnsupportedOperation`` for accelerators of two kinds, and for GPUs whose compute capabilities differ:
    kernels are compiled for one.
    """
    found = [each for each in devices if is_accelerator(each.type)]
    if len(found) < 2:
        return ONE_GPU
    if len({each.type for each in found}) > 1:
        raise UnsupportedOperation(
            f"{' and '.join(map(str, found))} are accelerators of different kinds",
            hint="break the graph where tensors go from one to the other",
        )
    kind = found[0].type
    if is_gpu(kind) and gpu.is_available() and len(set(map(gpu.get_device_capability, found))) > 1:
        raise UnsupportedOperation(
            f"{' and '.join(map(str, found))} have different compute capabilities",
            hint="break the graph where tensors go from one GPU to the next",
        )
    return Gpus(tuple(each.index for each in found), kind)
