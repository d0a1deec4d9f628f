"""Steps of a plan as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from litz.explain.page.quantities import bytes_text
from litz_ir.loops import references
from litz_ir.plan import (
    Allocate,
    CallStep,
    CheckStep,
    DefineStep,
    Free,
    Kernel,
    Launch,
    Plan,
    RegionStep,
    Step,
)


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of a plan."""

    key: str
    """Its key in the page."""

    position: int
    """Its position."""

    kind: str
    """``launch``, ``call``, ``region``, ``allocate``, ``free``, ``define`` or ``check``."""

    name: str
    """Kernel, routine, storage or symbol."""

    detail: str
    """Values that it reads and writes, or a size."""


def step_rows(plan: Plan, prefix: str) -> tuple[StepRow, ...]:
    """Return the steps of a plan, with keys that begin with ``prefix``."""
    kernels = {kernel.name: kernel for kernel in plan.kernels}
    storages = {each.name: bytes_text(plan.symbols.hint(each.nbytes)) for each in plan.storages}
    return tuple(
        StepRow(f"{prefix}.{position}", position, *_described(step, kernels, storages))
        for position, step in enumerate(plan.steps)
    )


def reads_and_writes(step: Step, kernels: dict[str, Kernel]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the buffers that a step reads, and those that it writes or returns, each once.

    A call without a result writes to its first argument.
    """
    reads: Iterable[str] = ()
    writes: Iterable[str] = ()
    match step:
        case Launch():
            pairs = list(zip(kernels[step.kernel].parameters, step.buffers, strict=True))
            reads = (buffer for parameter, buffer in pairs if parameter.access in ("in", "inout"))
            writes = (buffer for parameter, buffer in pairs if parameter.access in ("out", "inout"))
        case CallStep():
            reads = tuple(_referenced(step))
            writes = tuple(name for name in step.results if name is not None) or tuple(reads)[:1]
        case RegionStep():
            reads = (name for each in step.arguments for name in references(each))
            writes = step.results
    return tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes))


def _referenced(step: CallStep) -> Iterator[str]:
    """Yield the buffers that a call is given."""
    for each in (*step.arguments, *(value for _, value in step.attributes)):
        yield from references(each)


def _described(step: Step, kernels: dict[str, Kernel], storages: dict[str, str]) -> tuple[str, str, str]:
    """Return kind, name and detail of a step."""
    match step:
        case Allocate():
            return "allocate", step.storage, storages[step.storage]
        case Free():
            return "free", step.name, storages.get(step.name, "")
        case DefineStep():
            return "define", step.symbol, ""
        case CheckStep():
            return "check", step.error, step.message
        case Launch():
            kind, name = "launch", step.kernel
        case CallStep():
            kind, name = "call", step.target
        case RegionStep():
            kind, name = "region", f"{step.kind} {', '.join(step.plans)}"
    reads, writes = reads_and_writes(step, kernels)
    return kind, name, f"{', '.join(reads)} \N{RIGHTWARDS ARROW} {', '.join(writes)}"
