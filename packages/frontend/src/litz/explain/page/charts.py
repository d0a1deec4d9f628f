"""Charts of a page: memory over the steps of a plan, and the roofline of its kernels, as shapes of SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from litz.explain.machine import MachineLimits
from litz.explain.page.quantities import bytes_text, rate_text
from litz_scheduler import MemoryTimeline

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720.0, 230.0, 78.0, 14.0, 12.0, 34.0
"""Size of a chart and its margins, in pixels."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled position on an axis."""

    at: float
    """Position in pixels."""

    text: str
    """Label."""


@dataclass(frozen=True, slots=True)
class MemoryChart:
    """Bytes over steps."""

    area: str
    """SVG path of the filled area."""

    ticks: tuple[Tick, ...]
    """Labels of the vertical axis."""

    peak_x: float
    """Horizontal position of the peak."""

    peak_y: float
    """Vertical position of the peak."""

    steps: tuple[tuple[float, float], ...]
    """Left border and width of each step."""


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """A kernel or call in a roofline."""

    x: float
    """Horizontal position: operations per byte."""

    y: float
    """Vertical position: operations per second."""

    label: str
    """Text of its tooltip."""

    keys: str
    """Keys of its steps."""

    call: bool
    """True for a library call."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Operations per second over operations per byte, on logarithmic axes."""

    roof: str
    """SVG path of the machine's limits."""

    across: tuple[Tick, ...]
    """Labels of the horizontal axis."""

    up: tuple[Tick, ...]
    """Labels of the vertical axis."""

    points: tuple[RooflinePoint, ...]
    """Kernels and calls that compute something."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Work of equal launches or calls, with the measured time of one."""

    nbytes: int
    """Bytes moved."""

    flops: int
    """Operations, at least 1."""

    seconds: float
    """Measured time, in seconds."""

    label: str
    """Name in the tooltip."""

    keys: str
    """Keys of its steps."""

    call: bool
    """True for a library call."""


def memory_chart(timeline: MemoryTimeline) -> MemoryChart | None:
    """Return the chart of a plan's memory; ``None`` for a plan that allocates nothing."""
    if not timeline.peak:
        return None
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    width = across / len(timeline.live)
    heights = [TOP + up * (1 - live / timeline.peak) for live in timeline.live]
    path = [f"M{LEFT:.1f},{TOP + up:.1f}"]
    for position, height in enumerate(heights):
        path.append(f"V{height:.1f}H{LEFT + width * (position + 1):.1f}")
    path.append(f"V{TOP + up:.1f}Z")
    ticks = [Tick(TOP + up * (1 - part), bytes_text(timeline.peak * part)) for part in (0, 0.5, 1)]
    peak_x = LEFT + width * (timeline.peak_step + 0.5)
    steps = [(LEFT + width * position, width) for position in range(len(heights))]
    return MemoryChart("".join(path), tuple(ticks), peak_x, heights[timeline.peak_step], tuple(steps))


def roofline(work: Sequence[Measured], limits: MachineLimits) -> Roofline | None:
    """Return the roofline of measured work; ``None`` where none has operations, bytes and a time."""
    own = [each for each in work if each.flops and each.nbytes and each.seconds]
    if not own:
        return None
    ridge = limits.flops_per_second / limits.bytes_per_second
    intensities = [each.flops / each.nbytes for each in own]
    rates = [each.flops / each.seconds for each in own]
    low, high = _decades([*intensities, ridge])
    least, most = _decades([*rates, limits.flops_per_second])

    def at_x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(value) - low) / (high - low)

    def at_y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (math.log10(value) - least) / (most - least))

    # The slope begins at the left border, or where it leaves the lower one.
    start = max(10**low, 10**least / limits.bytes_per_second)
    corners = [
        (start, start * limits.bytes_per_second),
        (ridge, limits.flops_per_second),
        (10**high, limits.flops_per_second),
    ]
    roof = "M" + "L".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in corners)
    across = [Tick(at_x(10**each), _power(each)) for each in range(low, high + 1)]
    up = [Tick(at_y(10**each), rate_text(10**each)) for each in range(least, most + 1, _stride(most - least))]
    points = [
        RooflinePoint(at_x(x), at_y(y), f"{each.label}: {rate_text(y)}, {x:.2g} FLOP/B", each.keys, each.call)
        for each, x, y in zip(own, intensities, rates, strict=True)
    ]
    return Roofline(roof, tuple(across), tuple(up), tuple(points))


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten around some values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _stride(decades: int) -> int:
    """Return the number of decades between labels, so that at most six fit."""
    return -(-decades // 6)


def _power(exponent: int) -> str:
    """Return a power of ten as a number."""
    return f"{10**exponent:g}"
