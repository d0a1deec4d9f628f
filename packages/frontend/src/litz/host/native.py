"""Binds the segments of a host program to built kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from litz.host.extents import extents
from litz.host.gpus import ONE_GPU, Gpus, SegmentCall
from litz.host.load import SegmentBinder
from litz.host.program import Segment
from litz.targets import TargetSet, devices_of
from litz_ir.device import Device
from litz_ir.errors import CodegenError
from litz_ir.plan import Kernel, Plan, kernels_in
from litz_ir.target import (
    ByteRange,
    FailureCallback,
    KernelModule,
    LaunchFunction,
    LazyModule,
    SegmentModule,
    SourceUnit,
    raise_failure,
)

Watch = Callable[[str, LaunchFunction, Sequence[int], Sequence[int | float]], None]
"""Sees a launch before it is made: the kernel's name, what launches it, the addresses of its buffers and its symbols'
values."""


def segment_binder(
    plan: Plan,
    built: Sequence[tuple[SourceUnit, Path]],
    targets: TargetSet,
    gpus: Gpus = ONE_GPU,
    watch: Watch | None = None,
    told: FailureCallback = raise_failure,
) -> SegmentBinder:
    """Loads the binaries onto the devices that their kernels run on, and returns what makes a segment callable with
    (addresses, symbol values).

    With a ``watch`` kernels are launched one by one, each shown to it before. ``told`` hears of what fails while they
    are launched, where there is a way around it.
    """
    kernels = {kernel.name: kernel for kernel in kernels_in(plan)}
    modules = _modules(plan, built, kernels, targets, gpus)
    for each in modules.values():
        if isinstance(each, LazyModule):
            each.on_failure(told)

    def bind(segment: Segment) -> SegmentCall:
        module = modules.get(segment.device)
        if module is None:
            text = f"{segment.name} launches kernels that no source defines"
            raise CodegenError(text, hint="report the plan's text form")
        with gpus.current(segment.device):
            reaches = _extents(module, segment, kernels)
            if watch is None and isinstance(module, SegmentModule):
                call = _one_call(module, segment, reaches)
            else:
                call = _one_by_one(module, segment, reaches, watch or _unseen)
        return gpus.with_current(segment.device, call)

    return bind


def _modules(
    plan: Plan,
    built: Sequence[tuple[SourceUnit, Path]],
    kernels: Mapping[str, Kernel],
    targets: TargetSet,
    gpus: Gpus,
) -> dict[Device, KernelModule]:
    """The kernels of each device, loaded there."""
    own: dict[Device, list[tuple[SourceUnit, Path]]] = {}
    for each, devices in zip(built, devices_of([unit for unit, _ in built], plan), strict=True):
        for device in devices:
            own.setdefault(device, []).append(each)
    modules: dict[Device, KernelModule] = {}
    for device, pairs in own.items():
        units, binaries = zip(*pairs, strict=True)
        with gpus.current(device):
            modules[device] = targets[device].load(units, binaries, kernels)
    return modules


def _unseen(
    kernel: str, function: LaunchFunction, addresses: Sequence[int], symbols: Sequence[int | float]
) -> None:
    """Nobody watches."""


def _extents(
    module: KernelModule, segment: Segment, kernels: Mapping[str, Kernel]
) -> list[Sequence[ByteRange | None]]:
    """The extents of each launch's buffers, for modules that may need them."""
    if isinstance(module, LazyModule):
        return list(extents(segment, kernels))
    return [[None] * len(where) for _, where, _ in segment.launches]


def _alone(module: KernelModule, kernel: str, reaches: Sequence[ByteRange | None]) -> LaunchFunction:
    """The launcher of one kernel of a segment."""
    if isinstance(module, SegmentModule):
        return module.segment([kernel], extents=reaches).run
    return module.function(kernel)


def _one_call(
    module: SegmentModule, segment: Segment, reaches: Sequence[Sequence[ByteRange | None]]
) -> SegmentCall:
    names = [kernel for kernel, _, _ in segment.launches]
    run = module.segment(names, segment.waits, [each for own in reaches for each in own]).run
    order = [k for _, where, _ in segment.launches for k in where]
    chosen = [k for _, _, which in segment.launches for k in which]
    if order == list(range(len(order))) and not chosen:
        return run

    def call(addresses: Sequence[int], symbols: Sequence[int | float] = ()) -> None:
        run([addresses[k] for k in order], [symbols[k] for k in chosen])

    return call


def _one_by_one(
    module: KernelModule, segment: Segment, reaches: Sequence[Sequence[ByteRange | None]], watch: Watch
) -> SegmentCall:
    launches = zip(segment.launches, reaches, strict=True)
    steps = [(kernel, _alone(module, kernel, own), where, which) for (kernel, where, which), own in launches]

    def call(addresses: Sequence[int], symbols: Sequence[int | float] = ()) -> None:
        for kernel, function, where, which in steps:
            places, values = [addresses[k] for k in where], [symbols[k] for k in which]
            watch(kernel, function, places, values)
            function(places, values)

    return call
