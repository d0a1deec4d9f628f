"""Memory that a step takes for itself while it runs, beyond what it hands over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litz_ir.plan.program import CallStep, Placement, Plan, RegionStep, Step
from litz_ir.symbols.table import SymbolTable
from litz_scheduler.cost.traffic import estimate
from litz_scheduler.cost.workspace import workspace
from litz_scheduler.memory.homes import memory_of


def transient_bytes(
    steps: Sequence[Step],
    placements: Mapping[str, Placement],
    subplans: Sequence[Plan],
    symbols: SymbolTable,
    threads: int,
) -> dict[int, int]:
    """By position, the bytes that steps take beyond their results; only of steps that take some. ``threads`` is how
    many routines of the host run on."""
    peaks = {plan.name: estimate(plan.peak, symbols) for plan in subplans}
    found: dict[int, int] = {}
    for position, step in enumerate(steps):
        if isinstance(step, RegionStep) and step.kind != "keep":
            results = sum(estimate(memory_of(placements[name]), symbols) for name in step.results)
            found[position] = max(0, max(peaks[name] for name in step.plans) - results)
        elif isinstance(step, CallStep) and (taken := workspace(step, placements, symbols, threads)):
            found[position] = taken
    return found
