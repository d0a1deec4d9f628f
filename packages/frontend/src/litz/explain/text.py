"""An explanation as text, drawn with Rich, which is imported when a text is drawn, since compilation does not need
it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from litz.passes import DECISIONS
from litz_ir.origin import abbreviated_list

if TYPE_CHECKING:
    from rich.console import Console

    from litz.explain.explanation import Explanation
    from litz.explain.report import GraphReport, KernelReport, RegionReport

WIDTH = 120
"""Columns of the text."""

_NO_REASON = (
    "Dynamo gives no reason: the function computes nothing with tensors, Dynamo is disabled for it, or skips it "
    "after an earlier graph break; call torch._dynamo.reset() to have it traced again"
)
"""Text for a call in which neither a graph nor a graph break was observed."""


def explanation_text(explanation: Explanation, width: int = WIDTH) -> str:
    """Return the report as plain text of at most ``width`` columns."""
    from rich.console import Console  # noqa: PLC0415  see above

    console = Console(width=width, record=True, file=io.StringIO(), color_system=None)
    for graph in explanation.graphs:
        _graph(console, graph)
    if explanation.uncompiled:
        console.print(f"{explanation.uncompiled} graphs run as ATen operations throughout")
    _breaks(console, explanation)
    _frames(console, explanation)
    _lost_time(console, explanation)
    return console.export_text()


def _breaks(console: Console, explanation: Explanation) -> None:
    """Print the graph breaks with their reasons, and whether a graph was compiled at all."""
    if not explanation.graphs and not explanation.uncompiled:
        console.print("no graph was compiled: PyTorch runs the whole call as it is written")
        if not explanation.breaks:
            console.print(_NO_REASON)
    for each in explanation.breaks:
        title, *more = each.lines or ("without a reason",)
        times = f" ({each.count} times)" if each.count > 1 else ""
        console.print(f"graph break{times}: {title}", markup=False)
        for line in more:
            console.print(f"  {line}", markup=False)


def _frames(console: Console, explanation: Explanation) -> None:
    """Print recompilations with their reasons, and sizes that conditions specialised."""
    for frame in explanation.frames:
        if frame.recompile_reason:
            reason = f"recompiled {frame.function} ({frame.compile_id}): {frame.recompile_reason}"
            console.print(reason, markup=False)
        for size in frame.specialised:
            why = "; ".join(size.reasons) or "without a condition"
            console.print(f"specialised {size.name} to {size.value} in {frame.function}: {why}", markup=False)


def _lost_time(console: Console, explanation: Explanation) -> None:
    """Print the limits of the machine, and the kernels that lose most time to them, where they were measured."""
    for each in explanation.limits:
        rates = f"{each.bytes_per_second / 1e9:.1f} GB/s, {each.flops_per_second / 1e9:.0f} GFLOP/s in f32"
        console.print(f"limits of this {each.device}: {rates}", markup=False)
    for lost in explanation.slowest():
        name, launches = lost.kernel.kernel.name, lost.launches
        count = f"{launches} launch{'' if launches == 1 else 'es'}"
        console.print(f"{name} loses {lost.seconds * 1e6:.1f} us to these limits in {count}", markup=False)


def _graph(console: Console, graph: GraphReport) -> None:
    """Print one graph: kernels, launches, library calls, regions, near misses and fallbacks."""
    from rich.table import Table  # noqa: PLC0415  see above

    origin = "from the cache" if graph.cached else f"compiled in {sum(graph.seconds.values()):.2f} s"
    console.print(
        f"graph {graph.name}: {len(graph.kernels)} launches, {len(graph.calls)} library calls, {origin}"
    )
    console.print(f"modelled peak memory {graph.plan.peak} B, without arguments and frozen regions")
    uncached = f"not cached on disk: {graph.uncacheable}" if graph.uncacheable else ""
    promised = f"options about results: {graph.promises}" if graph.promises else ""
    searched = f"not found in the cache: {graph.miss}" if graph.miss else ""
    for line in filter(None, (graph.cuda_graph, graph.precision, promised, uncached, searched)):
        console.print(line, markup=False)
    for each in graph.passes:
        console.print(f"pass of {each.describe().removeprefix(DECISIONS)}", markup=False)
    table = Table("kernel", "fuses", "from")
    for report in graph.kernels:
        for row in _fused(report):
            table.add_row(*row)
    if graph.kernels:
        console.print(table)
    _launches(console, graph)
    calls = Table("library call", "why", "from")
    for call in graph.calls:
        calls.add_row(call.target, call.reason, call.line)
    if graph.calls:
        console.print(calls)
    for region in graph.regions:
        detail = _frozen_region(region) if region.kind == "frozen" else region.line
        console.print(f"{region.kind}: {', '.join(region.plans)} ({detail})")
    for missed in graph.near_misses:
        console.print(f"left as written: {missed.subject}: {missed.reason.sentence} ({missed.note})")
    for cost in graph.fallback_costs:
        took = "" if cost.seconds is None else f", {cost.seconds * 1e6:.1f} us"
        moved = f"{cost.calls} call{'' if cost.calls == 1 else 's'}, {cost.nbytes / 1e6:.1f} MB{took}"
        lines = abbreviated_list(cost.lines)
        console.print(f"fallback to ATen: {cost.target}: {cost.reason} ({lines}; {moved})", markup=False)
    for owner in graph.memory[0][1].owners[:3] if graph.memory else ():
        console.print(f"at the memory peak: {owner.value}, {owner.nbytes} B", markup=False)


def _fused(report: KernelReport) -> Iterator[tuple[str, str, str]]:
    """Yield rows with a kernel's operations and lines; for a horizontally fused kernel one row for each subkernel."""
    if not report.subkernels:
        yield report.kernel.name, " ".join(report.operations), "\n".join(report.lines)
        return
    count = sum(subkernel.invocations for subkernel in report.subkernels)
    yield report.kernel.name, f"{count} loops in one launch, of {len(report.subkernels)} kinds", ""
    for subkernel in report.subkernels:
        loops = f"  {subkernel.invocations} loop{'s' if subkernel.invocations > 1 else ''}"
        yield loops, abbreviated_list(subkernel.operations), "\n".join(subkernel.lines)


def _launches(console: Console, graph: GraphReport) -> None:
    """Print schedules and times of the launches, where either is known."""
    from rich.table import Table  # noqa: PLC0415  see above

    rows = [_launch_cells(report) for report in graph.kernels if report.tiles or report.seconds is not None]
    titles = [
        title
        for title in dict.fromkeys(title for row in rows for title in row)
        if any(r[title] for r in rows)
    ]
    table = Table(*titles)
    for row in rows:
        table.add_row(*(row[title] for title in titles))
    if rows:
        console.print(table)


def _launch_cells(report: KernelReport) -> dict[str, str]:
    """Return a launch's cells by column title, empty where nothing is known."""
    seconds, rate = report.seconds, report.rate
    return {
        "kernel": report.kernel.name,
        "tiles": report.tiles,
        "tuned": report.tuned,
        "moves MB": f"{report.nbytes / 1e6:.1f}",
        "takes us": "" if seconds is None else f"{seconds * 1e6:.1f}",
        "GB/s": "" if rate is None else f"{rate / 1e9:.0f}",
    }


def _frozen_region(region: RegionReport) -> str:
    """Describe a frozen region: bytes, lifetime and operations."""
    until = "for good, since the option freezing is on" if region.frozen else "until a parameter changes"
    how = ", ".join(f"{count} x {name}" for name, count in region.constant_folded)
    return f"{region.frozen_bytes} B {until}; computed from {region.parameters} parameters by {how}"
