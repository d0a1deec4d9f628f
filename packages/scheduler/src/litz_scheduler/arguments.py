"""Checks of what callers give to the scheduler, of graphs before it and of what passes of others return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module

from litz_ir.device import Device
from litz_ir.errors import ConfigError, LitzError, PassError, VerifyError
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext, Timings
from litz_ir.plan import Plan
from litz_ir.target import Capabilities
from litz_scheduler.analysis.cost_model import CostModel
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.passes import PassList

VERIFIER = "litz_ir.verifier"
"""Module of the verifier, which programs that schedule verified graphs need not load."""

_HINTS: Mapping[type, str] = {
    LoopGraph: "call build() of a GraphBuilder, or litz_ir.from_text of a text",
    PassContext: "give PassContext({device: capabilities})",
    PassList: "edit default_passes(), which is one",
    Plan: "schedule a graph, which gives one",
    SchedulerOptions: "give SchedulerOptions(...), whose fields are its options",
}
"""Next step for an argument of another type."""


def require(kind: type, value: object, called: str) -> None:
    """Raise ``ConfigError`` unless an argument has a type."""
    if not isinstance(value, kind):
        raise ConfigError(
            f"{called} is {_described(value)}, but a {kind.__name__} belongs there", hint=_HINTS.get(kind, "")
        )


def require_context(context: object) -> None:
    """Raise ``ConfigError`` unless a context has capabilities by device, each of a device of its own kind."""
    require(PassContext, context, "the context")
    known = getattr(context, "capabilities", None)
    if not isinstance(known, Mapping) or not known:
        raise ConfigError(
            f"the context has {_described(known)} for capabilities",
            hint="give PassContext({device: capabilities}), with each device of the graph",
        )
    for device, machine in known.items():
        if not isinstance(device, Device) or not isinstance(machine, Capabilities):
            raise ConfigError(
                f"the context has {_described(machine)} for {_described(device)}",
                hint="capabilities are by device: PassContext({CPU: Capabilities(...)})",
            )
        if device.kind != machine.device.kind:
            raise ConfigError(
                f"the context has the capabilities {machine.name} of {machine.device} for {device}",
                hint="give each device the capabilities of its own kind",
            )


def require_run(hooks: object, timings: object, fuel: object) -> None:
    """Raise ``ConfigError`` for hooks, timings or fuel that a run cannot use."""
    if not isinstance(hooks, Iterable) or not all(map(callable, hooks)):
        raise ConfigError(f"hooks is {_described(hooks)}", hint="give a sequence of functions")
    if timings is not None:
        require(Timings, timings, "timings")
    if fuel is not None and (type(fuel) is not int or fuel < 0):
        raise ConfigError(
            f"fuel is {fuel!r:.60}", hint="give a number of passes, at least 0, or None for all"
        )


def require_costs(costs: object) -> None:
    """Raise ``ConfigError`` unless an object answers every question of a cost model."""
    if isinstance(costs, type) or not isinstance(costs, CostModel):
        questions = [name for name in vars(CostModel) if not name.startswith("_")]
        missing = [name for name in questions if not callable(getattr(costs, name, None))]
        lacks = f": it has no {', '.join(missing)}" if missing else ""
        raise ConfigError(
            f"{_described(costs)} is no cost model{lacks}",
            hint="subclass ThresholdCosts, and give an instance",
        )


def verify(data: object) -> None:
    """Check every invariant of a graph or plan; raises ``VerifyError``."""
    import_module(VERIFIER).verify(data)


@dataclass(frozen=True, slots=True)
class VerifyResults:
    """Hook that checks what each pass returns, so that an error names the pass that made it."""

    def __call__(self, name: str, before: object, after: object) -> None:
        try:
            verify(after)
        except LitzError as error:
            if not isinstance(error, VerifyError):
                raise PassError(
                    f"pass {name} returned {_described(after)}, which is no form of a program",
                    hint="apply returns the transformed data",
                ) from error
            raise PassError(
                f"the result of pass {name} is malformed: {error.message}",
                node=error.node,
                origin=error.origin,
                hint=error.hint,
            ) from error


def _described(value: object) -> str:
    """Return a value as text: a class by its name, another value with its type."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
