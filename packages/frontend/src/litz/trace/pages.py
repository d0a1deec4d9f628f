"""Pages: the forms of one graph during its compilation, as texts with names."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from torch.fx import GraphModule

from litz.artifact import Artifact
from litz.loading import Compiled
from litz.reports.fx_source import graph_source
from litz_ir.fused import FusedGraph
from litz_ir.loops import LoopGraph
from litz_ir.origin import describe_locations
from litz_ir.plan import Launch, plans_in
from litz_ir.text import to_text
from litz_lowering import AtenGraph

_SUFFIXES: Mapping[str, str] = MappingProxyType(
    {"c++": ".cpp", "cpp": ".cpp", "triton": ".py", "python": ".py"}
)
"""Suffixes of sources by language."""


@dataclass(frozen=True, slots=True)
class Page:
    """A form of a graph as text."""

    path: str
    """Name of a file, which may be in a folder: ``loops/03_inline.txt``."""

    text: str
    """The content."""

    encoding: Literal["string", "json"] = "string"
    """Form of the content."""

    @property
    def name(self) -> str:
        """Name in words joined by underscores; that of Python code ends with ``code``."""
        stem, _, suffix = self.path.rpartition(".")
        return stem.replace("/", "_").replace("-", "_") + ("_code" if suffix == "py" else "")


@dataclass(frozen=True, slots=True)
class PassResult:
    """Input and output of one pass."""

    name: str
    """Name of the pass."""

    before: object
    """Its input."""

    after: object
    """Its output."""


def graph_pages(stem: str, gm: GraphModule) -> Iterator[Page]:
    """Yield an FX graph in readable form and, where all of it has a spelling, as code that builds it."""
    readable = gm.print_readable(print_output=False, include_stride=True, include_device=True)
    yield Page(f"{stem}.txt", readable)
    try:
        code = graph_source(gm)
    except TypeError:
        return
    yield Page(f"{stem}.py", code)


def pass_pages(results: Sequence[PassResult]) -> Iterator[Page]:
    """Yield the form before the first pass of each level, and after each pass that changed it, numbered in order."""
    latest: dict[tuple[str, str], str] = {}
    numbers: dict[str, int] = {}
    for result in results:
        for data, name in ((result.before, "start"), (result.after, result.name)):
            found = _form(data)
            if found is None:
                continue
            folder, graph, text = found
            # Passes over subgraphs of higher-order operators take turns with those over the graph.
            known = latest.get((folder, graph))
            if text == known or (name == "start" and known is not None):
                continue
            latest[folder, graph] = text
            number = numbers[folder] = numbers.get(folder, -1) + 1
            yield Page(f"{folder}/{number:02}_{name.removeprefix('fx.')}.txt", text)


def logged_forms(
    gm: GraphModule, results: Sequence[PassResult], captured: GraphModule | None
) -> dict[str, object]:
    """Return the forms of a graph by the names of torch's artifacts that show them.

    These are the graph of Dynamo, the ATen graph before it is lowered, the loop graph before fusion, and the fused one.
    Of subgraphs of higher-order operators, which are lowered and fused while their graph is, none is shown.
    """
    forms: dict[str, object] = {} if captured is None else {"pre_grad_graphs": captured}
    own = [each.after for each in results if isinstance(each.after, AtenGraph) and each.after.module is gm]
    forms["post_grad_graphs"] = own[-1] if own else gm
    fused = [each for each in results if each.name == "fuse"]
    if fused:
        forms |= {"ir_pre_fusion": fused[-1].before, "ir_post_fusion": fused[-1].after}
    return forms


def form_text(data: object) -> str:
    """Return a form of a graph as text: FX graphs with the user's lines, loop graphs and fused graphs in text form."""
    if isinstance(data, GraphModule):
        return data.print_readable(print_output=False, include_stride=True, include_device=True)
    found = _form(data)
    assert found is not None, "forms that are logged have a text"
    return found[2]


def _form(data: object) -> tuple[str, str, str] | None:
    """Return the folder of a form, the name of its graph and its text; ``None`` for plans and forms between levels."""
    match data:
        case AtenGraph():
            gm = GraphModule(data.module, copy.deepcopy(data.graph))
            readable = gm.print_readable(print_output=False, include_stride=True, include_device=True)
            return "fx", str(id(data.module)), readable
        case LoopGraph():
            return "loops", data.name, to_text(data)
        case FusedGraph():
            return "fused", data.graph.name, to_text(data)
    return None


def compiled_pages(compiled: Compiled, passes: Mapping[str, float]) -> Iterator[Page]:
    """Yield the plan, sources, host program, decisions and times of a compiled graph; ``passes`` are seconds of
    passes."""
    artifact = compiled.artifact
    if artifact is None:
        yield Page("aten.txt", "the graph runs as ATen operations: the log of litz says why\n")
        return
    yield Page("plan.txt", to_text(artifact.plan))
    rows = kernel_rows(artifact)
    for unit in artifact.units:
        suffix = _SUFFIXES.get(unit.language.lower(), ".txt")
        mark = "//" if suffix == ".cpp" else "#"
        own = [row for row in rows if row["kernel"] in unit.kernels]
        lines = [f"{mark} {row['kernel']}: {line}" for row in own for line in row["lines"]]
        yield Page(f"kernels/{unit.name}{suffix}", "\n".join([*dict.fromkeys(lines), "", unit.text]))
    yield Page("host.py", compiled.source)
    yield Page("kernels.json", _json(rows), "json")
    yield Page("decisions.json", _json(decision_rows(artifact)), "json")
    times = {"cached": artifact.cached, "stages": artifact.seconds, "passes": passes}
    yield Page("timings.json", _json(times), "json")


def kernel_rows(artifact: Artifact) -> list[dict[str, Any]]:
    """Return each launch of a plan with the operations that its kernel fuses and the user's lines."""
    return [
        {
            "plan": plan.name,
            "kernel": step.kernel,
            "operations": list(dict.fromkeys(each.operation for each in step.origins)),
            "lines": list(describe_locations(each.origin for each in step.origins)),
        }
        for plan in plans_in(artifact.plan)
        for step in plan.steps
        if isinstance(step, Launch)
    ]


def decision_rows(artifact: Artifact) -> list[dict[str, Any]]:
    """Return the decisions of the scheduler, then the operations that run as ATen kernels, with their reasons."""
    decisions = [
        {
            "plan": plan.name,
            "stage": each.stage,
            "value": each.subject,
            "verdict": each.verdict,
            "reason": each.reason.sentence,
            "bytes": str(each.bytes),
            "note": each.note,
        }
        for plan in plans_in(artifact.plan)
        for each in plan.decisions
    ]
    fallbacks = [
        {
            "plan": artifact.plan.name,
            "stage": "lowering",
            "value": each.target,
            "verdict": "call",
            "reason": each.reason,
            "bytes": "0",
            "note": each.line,
        }
        for each in artifact.fallbacks
    ]
    return [*decisions, *fallbacks]


def _json(value: object) -> str:
    """Return data as indented JSON."""
    return json.dumps(value, indent=1) + "\n"
