"""Checks that the device can run what is scheduled for it: operations of the loop graph, and kernels of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from litz_ir.errors import ScheduleError
from litz_ir.fused import Decision
from litz_ir.loops import LoopGraph, NamedCombiner, Operation, Reduction, Scan, as_user_combiner, span
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.passes import PassContext
from litz_ir.plan import CheckStep, DefineStep, Kernel, Launch, Plan, Step
from litz_ir.scalar import Expr, build
from litz_ir.symbols import bounds
from litz_ir.target import Capabilities, requirements_of
from litz_scheduler import reasons

_REMEDY = "run it as a call of the host, or rewrite it by operations that the device has"
_NAMED = f"if kernels compute it, name it in Capabilities.operations; else {_REMEDY}"
_DIVIDED = "divide the tensor, or run the operation as a call of the host"
"""Next steps for what a device lacks, for a scalar operation, and for a tensor that is too large."""


@dataclass(frozen=True, slots=True)
class DeviceSupport:
    """Require that devices compute every loop of the graph; combiners that one lacks are written out."""

    name: str = "device-support"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP: that of a combiner computed by its definition."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        """Return the graph with written-out combiners; raises ``ScheduleError`` that names the first operation that
        its device cannot compute.
        """
        operations = tuple(self._supported(each, context) for each in data.operations)
        return data if operations == data.operations else data.with_operations(operations)

    def _supported(self, operation: Operation, context: PassContext) -> Operation:
        machine = context.machine(operation.results[0].type.device) if operation.results else None
        if machine is None:
            return operation
        if isinstance(operation, Reduction | Scan) and isinstance(operation.combiner, NamedCombiner):
            spelled = _spelled(operation, operation.combiner, machine)
            if spelled is not operation:
                context.decide(Decision("split", operation.name, "write out", reasons.WRITE_OUT_COMBINER))
                operation = spelled
        lacking = requirements_of(operation).lacking(machine)
        if lacking:
            raise _unsupported(operation.name, operation.origin, lacking, machine)
        return operation


def _spelled(operation: Reduction | Scan, combiner: NamedCombiner, machine: Capabilities) -> Operation:
    """Return the operation with its combiner written out, where the device has none of that name."""
    if not combiner.kind.combines or machine.combines(combiner.name) or not machine.combines("user"):
        return operation
    written, bodies = as_user_combiner(combiner, operation.bodies)
    return replace(operation, combiner=written, bodies=bodies)


def _unsupported(node: str, origin: Origin, lacking: str, machine: Capabilities) -> ScheduleError:
    return ScheduleError(
        f"{node} needs {lacking}, which kernels of {machine.name} lack",
        node=node,
        origin=origin,
        hint=_NAMED if lacking.startswith("the scalar operation") else _REMEDY,
    )


@dataclass(frozen=True, slots=True)
class KernelSupport:
    """Require that devices can run every kernel of the plan, and index its buffers with the integers that they have."""

    name: str = "kernel-support"
    """The name of the pass."""
    ulp: int = 0
    """The pass is exact."""

    def apply(self, data: Plan, context: PassContext) -> Plan:
        """Return the plan, with a check of sizes before its steps where they decide whether indices fit.

        Raises ``ScheduleError`` that names an operation of the first kernel that its device cannot run.
        """
        kernels = {kernel.name: kernel for kernel in data.kernels}
        placements = dict(data.buffers)
        checks: dict[Expr, CheckStep] = {}
        for step in data.steps:
            if not isinstance(step, Launch):
                continue
            device = placements[step.buffers[0]].type.device if step.buffers else data.device
            machine = context.machine(device)
            if machine is None:
                continue
            node, origin = _source(kernels[step.kernel], step)
            lacking = requirements_of(kernels[step.kernel]).lacking(machine)
            if lacking:
                raise _unsupported(node, origin, lacking, machine)
            if machine.index_bits < 64:
                for check in _index_checks(data, step, machine, node, origin):
                    checks.setdefault(check.condition, check)
        return replace(data, steps=_with_checks(data.steps, checks.values())) if checks else data


def _source(kernel: Kernel, step: Launch) -> tuple[str, Origin]:
    """Return the operation that errors of a launch name, and its origin."""
    if step.origins:
        return step.origins[0].operation, step.origins[0].origin
    return kernel.name, UNKNOWN


def _index_checks(
    plan: Plan, step: Launch, machine: Capabilities, node: str, origin: Origin
) -> Iterator[CheckStep]:
    """Yield checks that the device's integers can count the elements of each buffer of a launch, where they may not.

    Raises ``ScheduleError`` for a buffer of which they never can.
    """
    limit = 2 ** (machine.index_bits - 1)
    placements = dict(plan.buffers)
    for name in step.buffers:
        type_ = placements[name].type
        elements = span(type_.shape, type_.layout)
        known = bounds(elements, plan.symbols.ranges())
        if known.high is not None and known.high < limit:
            continue
        message = f"{name} has {elements} elements; indices of {machine.name} have {machine.index_bits} bits"
        if known.low is not None and known.low >= limit:
            raise ScheduleError(message, node=node, origin=origin, hint=_DIVIDED)
        below = build.op("lt", build.index(elements), build.index(limit))
        yield CheckStep(below, message, origin=origin)


def _with_checks(steps: tuple[Step, ...], checks: Iterable[CheckStep]) -> tuple[Step, ...]:
    """Return the steps with each check as soon as its symbols have values."""
    defined = {step.symbol: k for k, step in enumerate(steps) if isinstance(step, DefineStep)}
    after: dict[int, list[CheckStep]] = {}
    for check in checks:
        position = max((defined.get(name, -1) for name in check.condition.free_symbols), default=-1)
        after.setdefault(position, []).append(check)
    result: list[Step] = [*after.get(-1, ())]
    for k, step in enumerate(steps):
        result += (step, *after.get(k, ()))
    return tuple(result)
