"""The drawing of a plan: kernels, calls and regions as boxes, the values between them as edges."""

from __future__ import annotations

from dataclasses import dataclass

from litz.explain.page.graph_layout import Edge, Layout, lay_out
from litz.explain.page.quantities import bytes_text
from litz.explain.page.step_texts import reads_and_writes
from litz.explain.report import GraphReport
from litz_ir.loops import Ref
from litz_ir.plan import CallStep, Launch, RegionStep, memory_root
from litz_ir.symbols import product

_LETTER, _LEAST, _MOST = 6.6, 96.0, 260.0
"""Width of a letter, and least and greatest width of a box, in pixels."""

_LONGEST = int((_MOST - 16) / _LETTER)
"""Most letters of a label."""


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """A box of a drawing."""

    key: str
    """Key of the step in the page."""

    kind: str
    """``launch``, ``call`` or ``region``."""

    label: str
    """Its name, shortened."""

    detail: str
    """Its number of operations or results, and the bytes that it moves."""

    title: str
    """Full name and fused operations."""

    returns: bool
    """True if it computes a result of the graph."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A plan as boxes and edges."""

    layout: Layout
    """Positions."""

    steps: tuple[DrawnStep, ...]
    """The boxes, in the order of ``layout.boxes``."""

    edges: tuple[tuple[str, str], ...]
    """Name of the value and keys of the steps of each edge, in the order of ``layout.paths``."""


def drawing(graph: GraphReport, prefix: str) -> Drawing:
    """Return the drawing of a graph's plan, without subplans; keys of steps begin with ``prefix``."""
    plan = graph.plan
    placements, kernels = dict(plan.buffers), {kernel.name: kernel for kernel in plan.kernels}
    launches = {
        each.step.position: each for each in graph.kernels if each.step and each.step.plan == plan.name
    }
    calls = {each.step.position: each for each in graph.calls if each.step and each.step.plan == plan.name}
    results = {memory_root(each.name, placements) for each in plan.outputs if isinstance(each, Ref)}
    steps: list[DrawnStep] = []
    writer: dict[str, int] = {}
    readers: dict[tuple[int, str], list[int]] = {}
    for position, step in enumerate(plan.steps):
        if not isinstance(step, Launch | CallStep | RegionStep):
            continue
        number, (reads, writes) = len(steps), reads_and_writes(step, kernels)
        for name in reads:
            root = memory_root(name, placements)
            if root in writer:
                readers.setdefault((writer[root], root), []).append(number)
        roots = {memory_root(name, placements) for name in writes}
        for root in roots:
            writer[root] = number
        key = f"{prefix}.{position}"
        returns = bool(roots & results)
        if position in launches:
            report = launches[position]
            detail = f"{_count(len(report.operations), 'operation')}, {bytes_text(report.nbytes)}"
            title = f"{report.kernel.name}: {', '.join(report.operations)}"
            steps.append(DrawnStep(key, "launch", _cut(report.kernel.name), detail, title, returns))
        elif position in calls:
            call = calls[position]
            name = call.target.removeprefix("aten.").removesuffix(".default")
            title = f"{call.target}: {call.reason}"
            steps.append(DrawnStep(key, "call", _cut(name), bytes_text(call.nbytes), title, returns))
        else:
            assert isinstance(step, RegionStep)
            detail = _count(len(step.results), "result")
            title = f"{step.kind}: {', '.join(step.plans)}"
            steps.append(DrawnStep(key, "region", _cut(step.kind), detail, title, returns))
    edges = {pair: tuple(dict.fromkeys(own)) for pair, own in readers.items()}
    drawn = [Edge(source, own) for (source, _), own in edges.items()]
    widths = [_width(each) for each in steps]
    named = []
    for (source, root), own in edges.items():
        type_ = placements[root].type
        nbytes = plan.symbols.hint(product(type_.shape)) * type_.dtype.itemsize
        keys = " ".join(steps[number].key for number in (source, *own))
        named.append((f"{root}, {bytes_text(nbytes)}", keys))
    return Drawing(lay_out(widths, drawn), tuple(steps), tuple(named))


def _width(step: DrawnStep) -> float:
    """Return the width of a box that holds its label and detail."""
    longest = max(len(step.label), 0.9 * len(step.detail))
    return max(_LEAST, min(_MOST, 16 + _LETTER * longest))


def _cut(label: str) -> str:
    """Return a label that fits in the widest box."""
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
