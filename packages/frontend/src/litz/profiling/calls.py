"""Calls of compiled graphs as events of torch's profiler; imported where one runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from litz.devices import gpu
from litz.host.runtime.load import HostFunction

Event = torch._C._profiler._RecordFunctionFast
"""A range of a thread's time with a name, tensors and keyword values, which a running profiler records. The values are
shown with ``record_shapes=True``."""


def as_event(call: HostFunction, name: str) -> HostFunction:
    """Return a call as an event ``name`` with the shapes of its arguments."""

    def run(args: list[Any]) -> Sequence[Any]:
        # No tensors are given to the event, which would keep them alive during the call.
        with Event(name, [], {"shapes": described(args)}):
            return call(args)

    return run


def unless_captured(call: HostFunction, observed: HostFunction) -> HostFunction:
    """Return ``observed``, but ``call`` while it is captured as a CUDA graph."""

    def run(args: list[Any]) -> Sequence[Any]:
        return call(args) if gpu.is_current_stream_capturing() else observed(args)

    return run


def described(values: Iterable[object]) -> str:
    """Return the dtypes and shapes of the tensors among some values: ``float32[2, 3], int64[]``."""
    tensors = (value for value in values if isinstance(value, torch.Tensor))
    return ", ".join(f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}" for each in tensors)
