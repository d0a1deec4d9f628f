"""Times of the library calls of a plan, on the call's own arguments."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from litz.host.runtime.onednn import ONEDNN
from litz.timing import clock_of, sampler

CallKey = tuple[str, tuple[tuple[int, ...], ...]]
"""A routine, and the shapes of the tensors that it is given."""

_SAMPLES = 5
"""Timed calls of a routine that may be repeated."""


class CallTimes:
    """Observer of a plan's library calls that times each routine once per shapes.

    A routine that writes to no argument and draws no random numbers is called several times, any other one as often
    as the plan calls it.
    """

    def __init__(self) -> None:
        self.samples: dict[CallKey, list[float]] = {}
        """Times of the calls, in seconds."""

    def seconds(self, key: CallKey) -> float | None:
        """Return the median time of the calls of a routine with these shapes; ``None`` without any."""
        return statistics.median(self.samples[key]) if key in self.samples else None

    def watched(self, target: str, routine: Callable[..., Any]) -> Callable[..., Any]:
        """Return the routine, timed."""
        repeatable = _repeatable(target)

        def call(*args: Any, **kwargs: Any) -> Any:
            tensors = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
            key = (target, tuple(tuple(each.shape) for each in tensors))
            sample = sampler(clock_of(tensors[0].device.type if tensors else "cpu"), flush=False)
            found = self.samples.setdefault(key, [])
            results: list[Any] = []

            def run() -> None:
                results[:] = [routine(*args, **kwargs)]

            if repeatable and not found:
                routine(*args, **kwargs)  # to warm up
                found += [sample(run) for _ in range(_SAMPLES)]
            else:
                found.append(sample(run))
            return results[0]

        return call


def _repeatable(target: str) -> bool:
    """Report whether a call may be repeated: it writes to no argument and draws no random numbers."""
    if target in ONEDNN:
        return True
    parts = target.split(".")
    if len(parts) != 3:
        return False
    packet = getattr(getattr(torch.ops, parts[0]), parts[1], None)
    overload = getattr(packet, parts[2], None)
    if not isinstance(overload, torch._ops.OpOverload):
        return False
    return not overload._schema.is_mutable and torch.Tag.nondeterministic_seeded not in overload.tags
