"""Segments of a host program as callables over compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from litz.host.program import Segment
from litz.host.runtime.extents import extents
from litz.host.runtime.frozen_copies import Copies
from litz.host.runtime.frozen_results import Comparison
from litz.host.runtime.gpus import ONE_GPU, Gpus, SegmentCall
from litz.targets import TargetSet, devices_of
from litz_ir.device import Device
from litz_ir.errors import CodegenError
from litz_ir.plan import Kernel, Plan, kernels_in
from litz_ir.target import (
    ByteRange,
    ComparingModule,
    CopyingModule,
    FailureCallback,
    KernelModule,
    LaunchFunction,
    LazyModule,
    SegmentModule,
    SelectingCall,
    SourceUnit,
    Target,
    address_function,
    raise_failure,
)

Watch = Callable[[str, LaunchFunction, Sequence[int], Sequence[int | float]], None]
"""Observer of launches: gets the kernel's name, its launcher, buffer addresses and symbol values before each launch."""


LauncherOf = Callable[[Target], "tuple[SourceUnit, Path] | None"]
"""Function that returns the source and the binary of a ``LaunchingTarget``'s library, if there is one."""


def no_launcher(target: Target) -> None:
    """Return no library, whatever the target."""


@dataclass(frozen=True, slots=True)
class NativeBinder:
    """Maker of the native calls of a host program, from loaded kernels."""

    modules: Mapping[Device, KernelModule]
    """The kernels of each device."""

    kernels: Mapping[str, Kernel]
    """The kernels of the plan by name."""

    gpus: Gpus
    """Ordinals of the graph's GPUs."""

    watch: Watch | None
    """Observer of launches, which are then made one by one."""

    def __call__(self, segment: Segment) -> SegmentCall:
        """Return a segment as a function of addresses and symbol values."""
        module = self.modules.get(segment.device)
        if module is None:
            text = f"{segment.name} launches kernels that no source defines"
            raise CodegenError(text, hint="report the plan's text form")
        with self.gpus.current(segment.device):
            ranges = _extents(module, segment, self.kernels)
            if self.watch is None and isinstance(module, SegmentModule):
                call = _one_call(module, segment, ranges)
            else:
                call = _one_by_one(module, segment, ranges, self.watch or _ignore)
        return self.gpus.with_current(segment.device, call)

    @property
    def comparison(self) -> Comparison | None:
        """The native comparison of memory; ``None`` where no module offers one."""
        found = (each.comparison for each in self.modules.values() if isinstance(each, ComparingModule))
        return next(found, None)

    def copies(self, device: Device) -> Copies | None:
        """Return the function that keeps copies of a device's memory; ``None`` where its module has none."""
        module = self.modules.get(device)
        return module.copies if isinstance(module, CopyingModule) else None


def segment_binder(
    plan: Plan,
    built: Sequence[tuple[SourceUnit, Path]],
    targets: TargetSet,
    gpus: Gpus = ONE_GPU,
    watch: Watch | None = None,
    report: FailureCallback = raise_failure,
    launcher_of: LauncherOf = no_launcher,
) -> NativeBinder:
    """Load binaries on the devices of their kernels; return the maker of the native calls.

    With a ``watch`` kernels are launched one by one, each shown to ``watch`` before. ``report`` receives failures
    inside launches that have a fallback. ``launcher_of`` returns the library with which a target's modules launch.
    """
    kernels = {kernel.name: kernel for kernel in kernels_in(plan)}
    modules = _modules(plan, built, kernels, targets, gpus, launcher_of)
    for each in modules.values():
        if isinstance(each, LazyModule):
            each.on_failure(report)
    return NativeBinder(modules, kernels, gpus, watch)


def _modules(
    plan: Plan,
    built: Sequence[tuple[SourceUnit, Path]],
    kernels: Mapping[str, Kernel],
    targets: TargetSet,
    gpus: Gpus,
    launcher_of: LauncherOf,
) -> dict[Device, KernelModule]:
    """Return the kernels of each device, loaded there."""
    own: dict[Device, list[tuple[SourceUnit, Path]]] = {}
    for each, devices in zip(built, devices_of([unit for unit, _ in built], plan), strict=True):
        for device in devices:
            own.setdefault(device, []).append(each)
    modules: dict[Device, KernelModule] = {}
    for device, pairs in own.items():
        launcher = launcher_of(targets[device])
        if launcher is not None:
            pairs.append(launcher)
        units, binaries = zip(*pairs, strict=True)
        with gpus.current(device):
            modules[device] = targets[device].load(units, binaries, kernels)
    return modules


def _ignore(
    kernel: str, function: LaunchFunction, addresses: Sequence[int], symbols: Sequence[int | float]
) -> None:
    """Observe nothing."""


def _extents(
    module: KernelModule, segment: Segment, kernels: Mapping[str, Kernel]
) -> list[Sequence[ByteRange | None]]:
    """Return the byte ranges of each launch's buffers, for modules that may need them."""
    if isinstance(module, LazyModule):
        return list(extents(segment, kernels))
    return [[None] * len(buffer_positions) for _, buffer_positions, _ in segment.launches]


def _launcher(module: KernelModule, kernel: str, ranges: Sequence[ByteRange | None]) -> LaunchFunction:
    """Return the launcher of one kernel of a segment."""
    if isinstance(module, SegmentModule):
        return module.segment([kernel], extents=ranges).run
    return address_function(module.function(kernel), kernel)


def _one_call(
    module: SegmentModule, segment: Segment, ranges: Sequence[Sequence[ByteRange | None]]
) -> SegmentCall:
    """Return a segment as one native call."""
    names = [kernel for kernel, _, _ in segment.launches]
    made = module.segment(names, segment.waits, [each for own in ranges for each in own])
    order = [k for _, buffer_positions, _ in segment.launches for k in buffer_positions]
    chosen = [k for _, _, symbol_positions in segment.launches for k in symbol_positions]
    if isinstance(made, SelectingCall):
        return made.selecting(order, chosen)
    run = made.run
    if order == list(range(len(order))) and not chosen:
        return run

    def call(addresses: Sequence[int], symbols: Sequence[int | float] = ()) -> None:
        run([addresses[k] for k in order], [symbols[k] for k in chosen])

    return call


def _one_by_one(
    module: KernelModule, segment: Segment, ranges: Sequence[Sequence[ByteRange | None]], watch: Watch
) -> SegmentCall:
    """Return a segment as a call per kernel."""
    launches = zip(segment.launches, ranges, strict=True)
    steps = [
        (kernel, _launcher(module, kernel, own), buffer_positions, symbol_positions)
        for (kernel, buffer_positions, symbol_positions), own in launches
    ]

    def call(addresses: Sequence[int], symbols: Sequence[int | float] = ()) -> None:
        for kernel, function, buffer_positions, symbol_positions in steps:
            buffers, values = [addresses[k] for k in buffer_positions], [symbols[k] for k in symbol_positions]
            watch(kernel, function, buffers, values)
            function(buffers, values)

    return call
