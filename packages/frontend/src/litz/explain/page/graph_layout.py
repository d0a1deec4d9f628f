"""Layered layout of a directed graph, in the manner of Sugiyama: layers, order inside them, positions, edges.

K. Sugiyama, S. Tagawa and M. Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981.
Positions inside a layer are the least-squares ones with the given distances, by pooling adjacent violators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

ROW, GAP, MARGIN = 62, 22, 14
"""Height of a layer, distance of boxes in it, and margin around the drawing, in pixels."""

BOX, LANE = 34, 10
"""Height of a box, and width that an edge takes where it passes a layer, in pixels."""

_SWEEPS = 6
"""Sweeps down and up the layers, for the order and for the positions."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A value that one node writes and others read."""

    source: int
    """Number of the node that writes it."""

    readers: tuple[int, ...]
    """Numbers of the nodes that read it, all greater than ``source``."""


@dataclass(frozen=True, slots=True)
class Box:
    """A placed node."""

    x: float
    """Left border, in pixels."""

    y: float
    """Upper border, in pixels."""

    width: float
    """Width, in pixels."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A drawing of a graph."""

    width: float
    """Width of the drawing, in pixels."""

    height: float
    """Height of the drawing, in pixels."""

    boxes: tuple[Box, ...]
    """The nodes, in their order."""

    paths: tuple[str, ...]
    """For each edge the SVG path to all of its readers."""


@dataclass(slots=True)
class _Point:
    """A node, or the passage of an edge through a layer."""

    layer: int
    width: float
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)
    x: float = 0.0


def lay_out(widths: Sequence[float], edges: Sequence[Edge]) -> Layout:
    """Lay out nodes of these widths, in pixels, numbered in an order in which no edge leads back."""
    layers = _layers(len(widths), edges)
    points = [_Point(layer, width) for layer, width in zip(layers, widths, strict=True)]
    edge_points = [_edge_points(points, edge) for edge in edges]
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for number, point in enumerate(points):
        rows[point.layer].append(number)
    _order(points, rows)
    _set_positions(points, rows)
    left = min((point.x - point.width / 2 for point in points), default=0.0)
    for point in points:
        point.x += MARGIN - left
    right = max((point.x + point.width / 2 for point in points), default=0.0)
    height = 2 * MARGIN + ROW * max(0, len(rows) - 1) + BOX
    boxes = [Box(p.x - p.width / 2, _top(p.layer), p.width) for p in points[: len(widths)]]
    paths = [
        _path(points, edge, points_of_edge) for edge, points_of_edge in zip(edges, edge_points, strict=True)
    ]
    return Layout(right + MARGIN, height, tuple(boxes), tuple(paths))


def _layers(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return the layer of each node: the length of the longest path to it."""
    above: dict[int, list[int]] = {}
    for edge in edges:
        for reader in edge.readers:
            above.setdefault(reader, []).append(edge.source)
    layers: list[int] = []
    for number in range(count):
        layers.append(max((layers[each] + 1 for each in above.get(number, ())), default=0))
    return layers


def _edge_points(points: list[_Point], edge: Edge) -> Mapping[int, int]:
    """Add the passages of an edge through the layers between its ends; return them by layer."""
    top = points[edge.source].layer
    bottom = max((points[reader].layer for reader in edge.readers), default=top)
    points_of_edge = {top: edge.source}
    for layer in range(top + 1, bottom):
        points.append(_Point(layer, LANE))
        points_of_edge[layer] = len(points) - 1
        _join(points, points_of_edge[layer - 1], points_of_edge[layer])
    for reader in edge.readers:
        _join(points, points_of_edge[points[reader].layer - 1], reader)
    return points_of_edge


def _join(points: list[_Point], upper: int, lower: int) -> None:
    points[upper].below.append(lower)
    points[lower].above.append(upper)


def _order(points: Sequence[_Point], rows: list[list[int]]) -> None:
    """Order each layer by the mean position of its neighbours, alternately from above and from below."""
    rank = {number: float(position) for row in rows for position, number in enumerate(row)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            wanted = {}
            for number in row:
                near = points[number].above if down else points[number].below
                wanted[number] = sum(rank[each] for each in near) / len(near) if near else rank[number]
            row.sort(key=lambda number: wanted[number])
            rank |= {number: float(position) for position, number in enumerate(row)}


def _set_positions(points: Sequence[_Point], rows: Sequence[Sequence[int]]) -> None:
    """Move each layer as near to its neighbours as the distances allow, alternately from above and from below."""
    for row in rows:
        _spread(points, row, [0.0] * len(row))
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            wanted = []
            for number in row:
                point = points[number]
                near = (point.above if down else point.below) or point.above or point.below
                wanted.append(sum(points[each].x for each in near) / len(near) if near else point.x)
            _spread(points, row, wanted)


def _spread(points: Sequence[_Point], row: Sequence[int], wanted: Sequence[float]) -> None:
    """Place a layer at the least-squares distance from the wanted positions, without overlaps, in its order."""
    offsets = [0.0]
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + (points[left].width + points[right].width) / 2 + GAP)
    blocks: list[tuple[float, int]] = []  # sum and number of the pooled positions
    for position, offset in zip(wanted, offsets, strict=False):
        total, count = position - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            before, members = blocks.pop()
            total, count = total + before, count + members
        blocks.append((total, count))
    positions = [total / count for total, count in blocks for _ in range(count)]
    for number, position, offset in zip(row, positions, offsets, strict=False):
        points[number].x = position + offset


def _path(points: Sequence[_Point], edge: Edge, points_of_edge: Mapping[int, int]) -> str:
    """Return the SVG path of an edge: its passages, and a curve to each reader."""
    parts, numbers = [], list(points_of_edge.values())
    for upper, lower in pairwise(numbers):
        parts.append(_curve(points[upper], points[lower]))
        top = _top(points[lower].layer)
        parts.append(f"M{points[lower].x:.0f},{top:.0f}v{BOX}")
    for reader in edge.readers:
        parts.append(_curve(points[points_of_edge[points[reader].layer - 1]], points[reader]))
    return "".join(parts)


def _curve(upper: _Point, lower: _Point) -> str:
    """Return the curve from the lower border of one point to the upper border of the next."""
    start, end = _top(upper.layer) + BOX, _top(lower.layer)
    middle = (start + end) / 2
    return f"M{upper.x:.0f},{start:.0f}C{upper.x:.0f},{middle:.0f} {lower.x:.0f},{middle:.0f} {lower.x:.0f},{end:.0f}"


def _top(layer: int) -> float:
    return MARGIN + ROW * layer
