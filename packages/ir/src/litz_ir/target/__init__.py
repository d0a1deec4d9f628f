"""Targets: the protocol of code generators, their capabilities and discovery, and their conformance suite."""

from litz_ir.target.capabilities import Capabilities
from litz_ir.target.device_model import DeviceModel
from litz_ir.target.protocol import (
    ByteRange,
    FailureCallback,
    KernelModule,
    LaunchFunction,
    LazyModule,
    PreparedTarget,
    SchedulingTarget,
    SegmentModule,
    SourceUnit,
    Target,
    TunableTarget,
    raise_failure,
)
from litz_ir.target.registry import find_target, load_target, made_target, target_entries

__all__ = [
    "Capabilities",
    "DeviceModel",
    "ByteRange",
    "LaunchFunction",
    "LazyModule",
    "KernelModule",
    "PreparedTarget",
    "SchedulingTarget",
    "SegmentModule",
    "SourceUnit",
    "Target",
    "FailureCallback",
    "TunableTarget",
    "find_target",
    "load_target",
    "made_target",
    "raise_failure",
    "target_entries",
]
