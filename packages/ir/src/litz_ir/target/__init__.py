"""Targets: the protocol of code generators, their capabilities and discovery, and their conformance suite."""

from litz_ir.host.launch import BufferArgument, BufferFunction, Launcher, LaunchFunction, address_function
from litz_ir.target.capabilities import Capabilities
from litz_ir.target.device_model import DeviceModel
from litz_ir.target.protocol import (
    ByteRange,
    FailureCallback,
    HostTarget,
    KernelModule,
    LazyModule,
    LinkingTarget,
    PortableTarget,
    PreparedTarget,
    SchedulingTarget,
    SegmentModule,
    SourceUnit,
    Target,
    TransferableTarget,
    TunableTarget,
    check_members,
    interface_of,
    missing_members,
    raise_failure,
)
from litz_ir.target.registry import extension_entries, find_target, load_target, made_target, target_entries
from litz_ir.target.requirements import Requirements, requirements_of

__all__ = [
    "Capabilities",
    "DeviceModel",
    "BufferArgument",
    "BufferFunction",
    "ByteRange",
    "HostTarget",
    "LaunchFunction",
    "Launcher",
    "LazyModule",
    "LinkingTarget",
    "KernelModule",
    "PortableTarget",
    "TransferableTarget",
    "PreparedTarget",
    "SchedulingTarget",
    "SegmentModule",
    "SourceUnit",
    "Target",
    "FailureCallback",
    "TunableTarget",
    "address_function",
    "extension_entries",
    "find_target",
    "load_target",
    "made_target",
    "check_members",
    "interface_of",
    "missing_members",
    "raise_failure",
    "Requirements",
    "requirements_of",
    "target_entries",
]
