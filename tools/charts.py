"""Draw the charts of the performance pages from their tables (`python tools/charts.py --write`), or check (`--check`).

A chart has the figures of one table and no others. Bars begin at 1, on a logarithmic axis. Each keeps its case, series
and figure in its identifier, so that `--check` needs no matplotlib: it compares them, and the lengths of the bars, with
the table.
"""

from __future__ import annotations

import argparse
import importlib
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parent.parent / "docs"
CHARTS = DOCS / "pictures" / "charts"

_BAR = re.compile(
    r'<g id="bar\|(?P<case>[^|"]*)\|(?P<series>[^|"]*)\|(?P<figure>[\d.]+)">\s*<path d="M (?P<x0>[\d.]+) [\d.]+\s+'
    r"L (?P<x1>[\d.]+) "
)
_WIDE, _NARROW = (0.25, 0.5, 1, 2, 4, 8, 16, 32), (0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4)
"""Figures that an axis of a wide or a narrow range may name."""

_NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class Chart:
    """A chart of ratios: how many times as fast litz is, or how much memory it takes, by case."""

    name: str
    """Name of the file, without its suffix."""

    page: str
    """Page of the table, under docs/."""

    heading: str
    """Heading that the table follows, without its signs."""

    series: tuple[str, ...]
    """Columns that are shown. ``a / b`` is the figure of one column divided by that of another."""

    title: str
    """Title, which says what the bars mean."""

    first: str = "case"
    """Name of the first column, as the header ends; it tells tables under one heading apart."""

    @property
    def path(self) -> Path:
        """File of the chart."""
        return CHARTS / f"{self.name}.svg"


CPU, H200, H100 = "performance.md", "results/gpu-h200.md", "results/models-h100.md"
SECOND, NEWEST = (
    "2026-11-22, after a second round of work on speed",
    "2026-11-26: recomputation, masks of rows, cuDNN's epilogues",
)

ALL = (
    Chart("cpu-inference", CPU, "Inference, one run", ("litz over eager", "litz over Inductor"),
          "Inference on two CPU cores: times as fast"),
    Chart("cpu-training", CPU, "Training, one run", ("litz over eager", "litz over Inductor"),
          "Training on two CPU cores: times as fast"),
    Chart("cpu-first-call", CPU, "Inference, one run", ("first call, Inductor s / first call, litz s",),
          "First calls on a CPU: times as quick as Inductor's"),
    Chart("cpu-memory", CPU, "Memory", ("inference", "training"), "Peak memory on a CPU, as a multiple of eager's"),
    Chart("h200-inference", H200, SECOND, ("litz over Inductor",), "Small programs on an H200: times as fast",
          "infer: case"),
    Chart("h200-training", H200, SECOND, ("litz over Inductor",), "Small programs on an H200, trained: times as fast",
          "train: case"),
    Chart("h200-large", H200, SECOND, ("litz over Inductor",), "Memory-bound kernels on an H200: times as fast",
          "large: case"),
    Chart("h100-training", H100, NEWEST, ("over Inductor", "eager / litz"),
          "Training of models on an H100, bf16: times as fast", "model"),
)  # fmt: skip


def table(chart: Chart) -> list[dict[str, str]]:
    """Return the rows of a chart's table, by the names of the columns."""
    text = (DOCS / chart.page).read_text(encoding="utf-8")
    _, found, rest = text.partition(f"# {chart.heading}\n")
    if not found:
        raise SystemExit(f"{chart.page} has no heading {chart.heading!r}")
    lines = iter(rest.splitlines())
    for line in lines:
        header = _cells(line)
        if header and header[0] == chart.first:
            next(lines)
            return [dict(zip(header, row)) for row in _rows(lines)]
    raise SystemExit(f"{chart.page} has no table of {chart.first!r} under {chart.heading!r}")


def _rows(lines: Any) -> list[list[str]]:
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append(_cells(line))
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []


def figures(chart: Chart) -> list[tuple[str, str, float]]:
    """Return the case, the series and the figure of each bar, series by series; means are no cases."""
    found = []
    for series in chart.series:
        for row in table(chart):
            case = row[chart.first]
            numbers = [_number(row.get(column, "")) for column in series.split(" / ")]
            if None not in numbers and "mean" not in case:
                known = [each for each in numbers if each is not None]
                found.append((case, series, known[0] / known[1] if len(known) == 2 else known[0]))
    return found


def _number(cell: str) -> float | None:
    found = _NUMBER.match(cell.replace(",", ""))
    return float(found[0]) if found else None


def shown(chart: Chart) -> list[tuple[str, str, float, float]]:
    """Return the case, the series, the figure and the length of each bar in the file of a chart."""
    text = chart.path.read_text(encoding="utf-8") if chart.path.exists() else ""
    return [
        (bar["case"], bar["series"], float(bar["figure"]), abs(float(bar["x1"]) - float(bar["x0"])))
        for bar in _BAR.finditer(text)
    ]


def differences(chart: Chart) -> list[str]:
    """Return sentences about what a chart shows unlike its table."""
    expected = [(case, _escaped(series), round(value, 3)) for case, series, value in figures(chart)]
    bars = shown(chart)
    if [bar[:3] for bar in bars] != expected:
        return [f"{chart.path.name} differs from the table of {chart.page}"]
    unit = max(length for *_, length in bars) / max(abs(math.log(value)) for *_, value, _ in bars)
    if any(abs(length - unit * abs(math.log(value))) > 1 for *_, value, length in bars):
        return [f"{chart.path.name} has bars that are not as long as their figures"]
    return []


def _escaped(series: str) -> str:
    return series.replace(" / ", " to ")


def figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure of this size in inches, and its axes without a frame."""
    made = importlib.import_module("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    axes = made.add_subplot()
    axes.spines[["top", "right", "left"]].set_visible(False)
    return made, axes


def write_svg(drawn: Figure, path: Path) -> None:
    """Write a figure as SVG whose text is text, the same at each run."""
    matplotlib = importlib.import_module("matplotlib")
    path.parent.mkdir(exist_ok=True)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "litz"}):
        drawn.savefig(
            path, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = "\n".join(line.rstrip() for line in path.read_text(encoding="utf-8").splitlines())
    # The reader's font stands in for matplotlib's, which few systems have.
    path.write_text(re.sub(r"'DejaVu Sans'[^;\"]*", "sans-serif", text) + "\n", encoding="utf-8")


def draw(chart: Chart) -> None:
    """Write the file of a chart."""
    bars, count = figures(chart), len(chart.series)
    cases = list(dict.fromkeys(case for case, *_ in bars))
    drawn, axes = figure(6.6, 0.7 + len(cases) * (0.12 + 0.16 * count))
    axes.set_xscale("log")
    for number, (series, colour) in enumerate(zip(chart.series, ("#3f51b5", "#e08e0b"))):
        own = [(cases.index(case), value) for case, name, value in bars if name == series]
        rows = [row + (number - (count - 1) / 2) * 0.8 / count for row, _ in own]
        made = axes.barh(rows, [value - 1 for _, value in own], 0.76 / count, left=1, color=colour)
        made.set_label("over eager" if series == "eager / litz" else series)
        for patch, height, (row, value) in zip(made, rows, own):
            patch.set_gid(f"bar|{cases[row]}|{_escaped(series)}|{value:.3f}")
            beyond = "right" if value < 1 else "left"
            axes.text(value, height, f" {value:.2f} ", ha=beyond, va="center", fontsize=8)
    axes.axvline(1, color="#555555", linewidth=0.8)
    axes.set_yticks(range(len(cases)), cases, fontsize=9)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    values = [value for *_, value in bars]
    low, high = min(*values, 1), max(*values, 1)
    margin = (high / low) ** 0.1  # the width of a figure
    low, high = low / margin, high * margin
    axes.set_xlim(low, high)
    ticks = [tick for tick in (_WIDE if high / low > 4 else _NARROW) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_title(chart.title, fontsize=10, loc="left")
    if count > 1:
        drawn.legend(fontsize=8, frameon=False, loc="outside lower right", ncols=count)
    write_svg(drawn, chart.path)


def main() -> int:
    """Write or check the charts; exit code 1 where one differs from its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true")
    action.add_argument("--check", action="store_true")
    if parser.parse_args().write:
        for chart in ALL:
            draw(chart)
        return 0
    found = [sentence for chart in ALL for sentence in differences(chart)]
    print(*found, sep="\n", file=sys.stderr)
    if found:
        print("If the tables are right, run: python tools/charts.py --write", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
