"""Binds the segments of a host program to built kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from litz_ir.plan.program import Plan
from litz_ir.target.protocol import Module, SourceUnit

from litz.host.load import SegmentBinder
from litz.host.source import Segment
from litz.targets import TargetSet

SegmentCall = Callable[..., None]


def segment_binder(
    plan: Plan, units: Sequence[SourceUnit], binaries: Sequence[Path], targets: TargetSet
) -> SegmentBinder:
    """Loads the binaries and returns what makes a segment callable with (addresses, symbol values)."""
    if not units:
        return _none
    module = targets[plan.device].load(units, binaries, {kernel.name: kernel for kernel in plan.kernels})

    def bind(segment: Segment) -> SegmentCall:
        sequence = getattr(module, "sequence", None)
        if sequence is not None:
            # One native call for the whole run.
            return sequence(segment.launches)  # type: ignore[no-any-return]  # an optional extra of a target's module
        return _one_by_one(module, segment)

    return bind


def _none(segment: Segment) -> SegmentCall:
    raise AssertionError(f"segment {segment.name} without a source unit")


def _one_by_one(module: Module, segment: Segment) -> SegmentCall:
    steps = [(module.function(kernel), where, which) for kernel, where, which in segment.launches]

    def call(addresses: Sequence[int], symbols: Sequence[int | float] = ()) -> None:
        for function, where, which in steps:
            function([addresses[k] for k in where], [symbols[k] for k in which])

    return call
