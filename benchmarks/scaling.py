"""Compile time by the length of a graph: `run.py --scaling` prints it.

Families of graphs of 10, 100, 1,000 and 10,000 ATen operations go through lowering, scheduling and source text, in
CPU time, and the exponent of the growth from 100 operations on is fitted. Then the C++ compiler: 1 against 80
equal layers, and a chain of 1,000 against one of 10,000 pointwise operations.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aten_graphs import FAMILIES, Family, chain, stack
from rich.console import Console
from rich.table import Table
from torch.fx import GraphModule

import litz
from litz.host.emit.source import host_program
from litz.stage_options import scheduler_options
from litz.targets import TargetSet, targets_for
from litz_ir.collection import collection_paused
from litz_ir.passes import PassContext
from litz_ir.target import SourceUnit
from litz_lowering import lower
from litz_scheduler import schedule

SIZES = (10, 100, 1_000, 10_000)
FITTED_FROM = 100
STEEPEST, SLOWEST = 1.1, 20.0
"""The bars: the largest exponent, and the most seconds for the longest graph."""
LAYERS = (1, 80)
CHAINS = (1_000, 10_000)


@dataclass(frozen=True, slots=True)
class Point:
    """One graph: its family, the operations asked for, seconds of CPU time by stage, and the counts of its plan."""

    family: str
    operations: int
    seconds: Mapping[str, float]
    kernels: int
    characters: int

    @property
    def total(self) -> float:
        """Seconds of all stages."""
        return math.fsum(self.seconds.values())


@dataclass(frozen=True, slots=True)
class Built:
    """Seconds of CPU time that the C++ compiler takes for a graph."""

    graph: str
    count: int
    units: int
    kernels: int
    seconds: float


def stages(gm: GraphModule, targets: TargetSet) -> tuple[dict[str, float], tuple[SourceUnit, ...]]:
    """Return seconds of CPU time by stage, and the C++ units."""
    seconds: dict[str, float] = {}

    def timed(stage: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = work()
        seconds[stage] = time.process_time() - start
        return result

    options = scheduler_options(litz.config.current(), targets)
    capabilities = targets.capabilities()
    (target,) = targets.by_kind.values()
    with collection_paused():
        lowered = timed("lower", lambda: lower(gm))
        plan = timed(
            "schedule", lambda: targets.scheduled(schedule(lowered.graph, PassContext(capabilities), options))
        )
        units = timed("emit", lambda: target.emit(plan))
        timed("host", lambda: host_program(plan))
    return seconds, units


def point(name: str, build: Family, operations: int, targets: TargetSet) -> Point:
    """Measure one graph: the fastest of a few runs where they are short."""
    gm = build(operations)
    runs = [stages(gm, targets) for _ in range(3 if operations < 1_000 else 1)]
    seconds, units = min(runs, key=lambda run: math.fsum(run[0].values()))
    kernels = sum(len(unit.kernels) for unit in units)
    return Point(name, operations, seconds, kernels, sum(len(unit.text) for unit in units))


def exponent(points: Sequence[Point]) -> float:
    """Return the slope of log seconds over log operations by least squares; NaN for fewer than two points."""
    pairs = [(math.log(p.operations), math.log(p.total)) for p in points if p.operations >= FITTED_FROM]
    if len(pairs) < 2:
        return math.nan
    middle = [math.fsum(values) / len(pairs) for values in zip(*pairs, strict=True)]
    across = math.fsum((x - middle[0]) * (y - middle[1]) for x, y in pairs)
    return across / math.fsum((x - middle[0]) ** 2 for x, _ in pairs)


def built(graph: str, count: int, gm: GraphModule, targets: TargetSet) -> Built:
    """Return the compiler's CPU time for all units of a graph, one after another."""
    _, units = stages(gm, targets)
    (target,) = targets.by_kind.values()
    with tempfile.TemporaryDirectory(prefix="litz-scaling-") as folder:
        before = os.times()
        for unit in units:
            target.build(unit, Path(folder))
        after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return Built(graph, count, len(units), sum(len(unit.kernels) for unit in units), seconds)


def compiled(targets: TargetSet) -> Iterator[Built]:
    """Yield the C++ compiler's CPU time for one layer and for many equal ones, for a short chain and a long one."""
    for depth in LAYERS:
        yield built("layers", depth, stack(depth), targets)
    for length in CHAINS:
        yield built("chain", length, chain(length), targets)


def table_of_points(points: Sequence[Point]) -> Table:
    """Return the table of seconds by family and size, with fitted exponents."""
    table = Table(title="lowering, scheduling and source text: seconds of CPU time")
    sizes = sorted({p.operations for p in points})
    table.add_column("operations", no_wrap=True)
    for heading in (*(f"{size:,}" for size in sizes), "exponent", "kernels", "slowest stage"):
        table.add_column(heading, justify="right")
    for name in dict.fromkeys(p.family for p in points):
        own = sorted((p for p in points if p.family == name), key=lambda p: p.operations)
        last = own[-1]
        stage = max(last.seconds, key=lambda key: last.seconds[key])
        slope = exponent(own)
        shown = f"{slope:.2f}" if slope <= STEEPEST else f"[red]{slope:.2f}[/red]"
        share = f"{stage} {last.seconds[stage] / last.total:.0%}"
        table.add_row(name, *(f"{p.total:.3f}" for p in own), shown, str(last.kernels), share)
    return table


def table_of_built(rows: Sequence[Built]) -> Table:
    """Return the table of the C++ compiler's CPU time."""
    table = Table(title="the C++ compiler: seconds of CPU time")
    for heading in ("graph", "of", "units", "kernels", "seconds", "over the first"):
        table.add_column(heading, justify="left" if heading == "graph" else "right")
    first: dict[str, float] = {}
    for row in rows:
        ratio = row.seconds / first.setdefault(row.graph, row.seconds)
        figures = (f"{row.count:,}", str(row.units), str(row.kernels), f"{row.seconds:.2f}", f"{ratio:.2f}")
        table.add_row(row.graph, *figures)
    return table


def complaints(points: Sequence[Point]) -> list[str]:
    """Return a line for each bar that is missed."""
    found = []
    for name in dict.fromkeys(p.family for p in points):
        own = [p for p in points if p.family == name]
        if exponent(own) > STEEPEST:
            found.append(f"{name}: exponent {exponent(own):.2f}, above {STEEPEST}")
        found += [f"{name}: {p.operations} operations in {p.total:.1f} s" for p in own if p.total > SLOWEST]
    return found


def measure_scaling(console: Console) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure and print all families and the C++ compiler; return rows for JSON, and a line for each missed bar."""
    targets = targets_for(("cpu",), litz.config.current())
    stages(chain(SIZES[0]), targets)  # what is loaded or made once is no graph's
    points = []
    for name, build in FAMILIES.items():
        for size in SIZES:
            console.print(f"{name}: {size:,} operations", style="dim", highlight=False)
            points.append(point(name, build, size, targets))
    rows = list(compiled(targets))
    console.print(table_of_points(points))
    console.print(table_of_built(rows))
    return [*(asdict(p) | {"total": p.total} for p in points), *map(asdict, rows)], complaints(points)
