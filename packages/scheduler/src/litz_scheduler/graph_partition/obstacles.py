"""Obstacles to capturing a plan as a CUDA graph: steps that may differ from call to call, or need the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from litz_ir.device import Device
from litz_ir.loops import Argument, ObjectInput, Ref, ScalarInput, ScalarRef, sizes_in
from litz_ir.plan import CallStep, CheckStep, DefineStep, Launch, Plan, RegionStep, Step, touched_by
from litz_ir.symbols import Term


@dataclass(frozen=True, slots=True)
class Routines:
    """Properties of extern routines by name."""

    is_unsafe: Callable[[str], bool]
    """True for a routine that reads values on the host or synchronises with the device."""
    mutates: Callable[[str], bool]
    """True for a routine that writes to its arguments."""


_SEEDED = "scaled_dot_product"
"""Part of the names of operators that return the state of a generator: on the CPU, except on the GPU during capture."""

_NUMBERS = "its sizes or numbers are not fixed"
_BY_POSITION = frozenset(
    {
        "strided", "strided_scatter", "aten.as_strided.default", "aten.as_strided_scatter.default",
        "aten.slice_scatter.default", "aten.select_scatter.default", "aten.diagonal_scatter.default",
    }
)  # fmt: skip
"""Routines that access memory around or between the elements of an argument, which a copy of the argument lacks."""


def obstacle(plan: Plan, routines: Routines) -> str:
    """Return the reason that a plan cannot be captured as a whole; empty where it can."""
    if list(plan.symbols):
        return "its sizes are not fixed"
    for item in plan.inputs:
        if isinstance(item, ScalarInput | ObjectInput):
            return f"{item.name} is not a tensor"
    obstacles = Obstacles(plan, routines)
    found = next(filter(None, map(obstacles.of, plan.steps)), "")
    if not found and not all(isinstance(output, Ref | None) for output in plan.outputs):
        return "it returns numbers"
    return found


class Obstacles:
    """The obstacles of single steps of a plan."""

    def __init__(self, plan: Plan, routines: Routines) -> None:
        self._is_unsafe = routines.is_unsafe
        self._device = Device(plan.device.kind)  # the GPU that is current while the plan runs
        self._types = {name: placement.type for name, placement in plan.buffers}

    def of(self, step: Step) -> str:
        """Return the reason that a step cannot be captured; empty where it can."""
        for name in touched_by(step):
            found = self._of_buffer(name, step)
            if found:
                return found
        match step:
            case CheckStep():
                return "it checks values"
            case RegionStep():
                return f"the higher-order operator {step.kind} reads values"
            case DefineStep():
                return f"{step.symbol} is computed on the host"
            case Launch() if any(isinstance(term, Term) for term in step.symbols):
                return _NUMBERS
            case CallStep() if step.target in _BY_POSITION:
                return f"{step.target} addresses memory by position"
            case CallStep() if self._is_unsafe(step.target):
                return f"{step.target} cannot be captured"
            case CallStep() if any(map(_has_numbers, (*step.arguments, *(v for _, v in step.attributes)))):
                return _NUMBERS
        return ""

    def _of_buffer(self, name: str, step: Step) -> str:
        """Return the reason that a step cannot be captured for one of its buffers; empty where there is none."""
        type_ = self._types.get(name)
        if type_ is None:
            return f"{name} is not a tensor"
        if type_.device != self._device and not (isinstance(step, CallStep) and _SEEDED in step.target):
            return f"{name} is on {'another GPU' if type_.device.kind == self._device.kind else 'the CPU'}"
        fixed = all(
            isinstance(size, int) for size in (*type_.shape, *type_.layout.strides, type_.layout.offset)
        )
        return "" if fixed else _NUMBERS


def _has_numbers(argument: Argument) -> bool:
    """Return True for an argument whose numbers may differ from call to call."""
    if isinstance(argument, tuple):
        return any(map(_has_numbers, argument))
    return isinstance(argument, ScalarRef | Term) or any(
        isinstance(size, Term) for size in sizes_in(argument)
    )
