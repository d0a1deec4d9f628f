"""Draw a chart of a run: the speed of each compiled backend relative to eager, as bars."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

BAR, MARGIN = 0.28, 1.4  # inches


def draw(speeds: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Write a PNG of ``speeds``, by backend and case, in multiples of eager's."""
    names = list(dict.fromkeys(name for of_backend in speeds.values() for name in of_backend))
    rows = max(len(speeds), 1)
    figure = Figure(figsize=(9.0, MARGIN + BAR * rows * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for place, (backend, found) in enumerate(speeds.items()):
        heights = [
            index + (place - (rows - 1) / 2) * 0.8 / rows for index, name in enumerate(names) if name in found
        ]
        widths = [found[name] for name in names if name in found]
        bars = axes.barh(heights, widths, height=0.8 / rows, label=backend)
        axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=7)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("speed over eager, times; one run, one machine")
    axes.legend()
    figure.savefig(path, dpi=120)
