"""Binds the segments of a host program to built kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from litz.host.gpus import ONE_GPU, Gpus, SegmentCall
from litz.host.load import SegmentBinder
from litz.host.program import Segment
from litz.targets import TargetSet, devices_of
from litz_ir.device import Device
from litz_ir.errors import CodegenError
from litz_ir.plan.program import Plan, kernels_in
from litz_ir.target.protocol import LaunchFunction, Module, SegmentModule, SourceUnit

Watch = Callable[[str, LaunchFunction, Sequence[int], Sequence[int | float]], None]
"""Sees a launch before it is made: the kernel's name, what launches it, the addresses of its buffers and its symbols'
values."""


def segment_binder(
    plan: Plan,
    built: Sequence[tuple[SourceUnit, Path]],
    targets: TargetSet,
    gpus: Gpus = ONE_GPU,
    watch: Watch | None = None,
) -> SegmentBinder:
    """Loads the binaries onto the devices that their kernels run on, and returns what makes a segment callable with
    (addresses, symbol values).

    With a ``watch`` kernels are launched one by one, each shown to it before.
    """
    modules = _modules(plan, built, targets, gpus)

    def bind(segment: Segment) -> SegmentCall:
        module = modules.get(segment.device)
        if module is None:
            text = f"{segment.name} launches kernels that no source defines"
            raise CodegenError(text, hint="report the plan's text form")
        with gpus.current(segment.device):
            if watch is None and isinstance(module, SegmentModule):
                call = _one_call(module, segment)
            else:
                call = _one_by_one(module, segment, watch or _unseen)
        return gpus.with_current(segment.device, call)

    return bind


def _modules(
    plan: Plan, built: Sequence[tuple[SourceUnit, Path]], targets: TargetSet, gpus: Gpus
) -> dict[Device, Module]:
    """The kernels of each device, loaded there."""
    kernels = {kernel.name: kernel for kernel in kernels_in(plan)}
    own: dict[Device, list[tuple[SourceUnit, Path]]] = {}
    for each, devices in zip(built, devices_of([unit for unit, _ in built], plan), strict=True):
        for device in devices:
            own.setdefault(device, []).append(each)
    modules: dict[Device, Module] = {}
    for device, pairs in own.items():
        units, binaries = zip(*pairs, strict=True)
        with gpus.current(device):
            modules[device] = targets[device].load(units, binaries, kernels)
    return modules


def _unseen(
    kernel: str, function: LaunchFunction, addresses: Sequence[int], symbols: Sequence[int | float]
) -> None:
    """Nobody watches."""


def _one_call(module: SegmentModule, segment: Segment) -> SegmentCall:
    run = module.segment([kernel for kernel, _, _ in segment.launches], segment.waits).run
    order = [k for _, where, _ in segment.launches for k in where]
    chosen = [k for _, _, which in segment.launches for k in which]
    if order == list(range(len(order))) and not chosen:
        return run

    def call(addresses: Sequence[int], symbols: Sequence[int | float] = ()) -> None:
        run([addresses[k] for k in order], [symbols[k] for k in chosen])

    return call


def _one_by_one(module: Module, segment: Segment, watch: Watch) -> SegmentCall:
    steps = [(kernel, module.function(kernel), where, which) for kernel, where, which in segment.launches]

    def call(addresses: Sequence[int], symbols: Sequence[int | float] = ()) -> None:
        for kernel, function, where, which in steps:
            places, values = [addresses[k] for k in where], [symbols[k] for k in which]
            watch(kernel, function, places, values)
            function(places, values)

    return call
