"""Explanations: what a function, or a program, was compiled to, as data."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from litz.artifact import AtenFallback
from litz.explain.captures import FrameReport
from litz.explain.graph_breaks import GraphBreak
from litz.explain.machine import MachineLimits
from litz.explain.report import CallReport, GraphReport, KernelReport, RegionReport
from litz.explain.text import explanation_text
from litz_ir.fused import Decision

_DOCUMENT, _PAGE = "litz.explain.document", "litz.explain.page.render"
"""Modules that write reports, which only those who want a document or a page need."""


@dataclass(frozen=True, slots=True)
class LostTime:
    """Time that the launches of a kernel lose to the machine's limits."""

    kernel: KernelReport
    """The first of the launches."""

    launches: int
    """Number of launches."""

    seconds: float
    """Lost time of all of them, in seconds."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """All graphs compiled in the calls that were observed: of a function, or of a program."""

    graphs: tuple[GraphReport, ...]
    """The compiled graphs."""

    uncompiled: int = 0
    """Number of graphs that run as ATen operations throughout."""

    breaks: tuple[GraphBreak, ...] = ()
    """Graph breaks of the calls. Dynamo reports them when it traces, so there are none for a function that is traced
    already."""

    frames: tuple[FrameReport, ...] = ()
    """Compilations by Dynamo, with guards, specialised sizes and the reasons of recompilations."""

    limits: tuple[MachineLimits, ...] = ()
    """Limits of the devices that kernels run on; empty where nothing was measured."""

    @property
    def recompiles(self) -> tuple[FrameReport, ...]:
        """Compilations of functions that were compiled before, each with its reason."""
        return tuple(frame for frame in self.frames if frame.recompile_reason)

    @property
    def peak(self) -> int:
        """The largest modelled peak of a graph, in bytes, symbolic sizes at their hints."""
        return max((graph.memory[0][1].peak for graph in self.graphs if graph.memory), default=0)

    def limits_of(self, kind: str) -> MachineLimits | None:
        """Return the limits of a kind of device; ``None`` where they were not measured."""
        return next((each for each in self.limits if each.device == kind), None)

    def slowest(self, count: int = 10) -> tuple[LostTime, ...]:
        """Return the kernels whose launches lose most time to the machine's limits, at most ``count``.

        Empty where nothing was measured.
        """
        launches: dict[tuple[str, str, int], list[KernelReport]] = {}
        for graph in self.graphs:
            for each in graph.kernels:
                launches.setdefault((graph.name, each.kernel.name, each.nbytes), []).append(each)
        lost = [
            LostTime(own[0], len(own), sum(self.lost_seconds(each) or 0.0 for each in own))
            for own in launches.values()
        ]
        return tuple(sorted((each for each in lost if each.seconds), key=lambda each: -each.seconds)[:count])

    def lost_seconds(self, kernel: KernelReport) -> float | None:
        """Return the time that a launch loses to the machine's limits; ``None`` where it was not measured."""
        limits = self.limits_of(kernel.device)
        return None if limits is None else kernel.lost_seconds(limits)

    @property
    def kernels(self) -> tuple[KernelReport, ...]:
        """Every kernel launch, in order."""
        return tuple(kernel for graph in self.graphs for kernel in graph.kernels)

    @property
    def calls(self) -> tuple[CallReport, ...]:
        """Every library call, in order."""
        return tuple(call for graph in self.graphs for call in graph.calls)

    @property
    def regions(self) -> tuple[RegionReport, ...]:
        """Every higher-order operator and frozen region, in order."""
        return tuple(region for graph in self.graphs for region in graph.regions)

    @property
    def fallbacks(self) -> tuple[AtenFallback, ...]:
        """Operations without a lowering."""
        return tuple(fallback for graph in self.graphs for fallback in graph.fallbacks)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Every choice of the rewrites and of the scheduler, with its reason."""
        return tuple(decision for graph in self.graphs for decision in graph.decisions)

    @property
    def near_misses(self) -> tuple[Decision, ...]:
        """Operations that resemble a pattern, such as attention, and were not rewritten, with the reason."""
        return tuple(missed for graph in self.graphs for missed in graph.near_misses)

    @property
    def passes(self) -> tuple[Decision, ...]:
        """Users' passes that ran, graph by graph, each with ``changed`` or ``unchanged``, and the rewrites they
        report."""
        return tuple(each for graph in self.graphs for each in graph.passes)

    def __str__(self) -> str:
        return explanation_text(self)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a document of numbers, texts, lists and dicts, as ``docs/explain.md`` describes it.

        Plans and kernels are not part of it: ``litz_ir.interchange`` writes those.
        """
        return cast(dict[str, Any], import_module(_DOCUMENT).document(self))

    def to_html(self, path: str | Path | None = None, title: str = "litz.explain") -> str:
        """Return the report as one HTML page that needs no other file, and write it to ``path`` where one is given."""
        page = cast(str, import_module(_PAGE).page(self, title))
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page
