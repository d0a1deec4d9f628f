"""What a device is, how one is found, and the suite that a new one runs."""

from litz_ir.target.capabilities import Capabilities
from litz_ir.target.protocol import (
    Extent,
    LaunchFunction,
    LazyModule,
    Module,
    PreparedTarget,
    SchedulingTarget,
    SegmentModule,
    SourceUnit,
    Target,
    Told,
    TunableTarget,
    raised,
)
from litz_ir.target.registry import find_target, load_target, made_target, target_entries

__all__ = [
    "Capabilities",
    "Extent",
    "LaunchFunction",
    "LazyModule",
    "Module",
    "PreparedTarget",
    "SchedulingTarget",
    "SegmentModule",
    "SourceUnit",
    "Target",
    "Told",
    "TunableTarget",
    "find_target",
    "load_target",
    "made_target",
    "raised",
    "target_entries",
]
