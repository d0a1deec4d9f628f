"""Explanations as documents: numbers, texts, lists and dicts, for files and for other programs."""

from __future__ import annotations

import re
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import torch

from litz.explain.explanation import Explanation
from litz.explain.report import (
    CallReport,
    FallbackCost,
    GraphReport,
    KernelReport,
    RegionReport,
    StepId,
)
from litz_ir.fused import Decision
from litz_ir.plan import Plan, plans_in
from litz_ir.symbols import SymbolTable
from litz_scheduler import MemoryTimeline

FORMAT, VERSION = "litz-explanation", 1
"""Name and version of the document's form. Keys may be added within a version; none changes its meaning."""

_SESSION = re.compile(r"_\d+$")
"""Number at the end of a graph's name, which depends on what the process compiled before."""


def document(explanation: Explanation) -> dict[str, Any]:
    """Return the document of an explanation; ``docs/explain.md`` describes its keys."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "litz": version("litz"),
        "torch": torch.__version__,
        "uncompiled": explanation.uncompiled,
        "breaks": [{"reason": each.reason, "count": each.count} for each in explanation.breaks],
        "frames": [asdict(frame) for frame in explanation.frames],
        "limits": [asdict(limits) for limits in explanation.limits],
        "graphs": [_graph(graph, explanation) for graph in explanation.graphs],
    }


def _graph(graph: GraphReport, explanation: Explanation) -> dict[str, Any]:
    """Return the document of one graph."""
    plan = graph.plan
    return {
        "name": graph.name,
        "kind": _SESSION.sub("", graph.name),
        "device": plan.device.kind,
        "capability": plan.capability,
        "cache": graph.cache_state,
        "key": graph.key,
        "uncacheable": graph.uncacheable,
        "miss": graph.miss,
        "seconds": dict(graph.seconds),
        "peak_bytes": plan.symbols.hint(plan.peak),
        "cuda_graph": graph.cuda_graph,
        "precision": graph.precision,
        "promises": graph.promises,
        "kernels": [_kernel(each, explanation) for each in graph.kernels],
        "calls": [_call(each) for each in graph.calls],
        "regions": [_region(each, plan.symbols) for each in graph.regions],
        "fallbacks": [_fallback(each) for each in graph.fallback_costs],
        "decisions": [_decision(each, owner) for owner in plans_in(plan) for each in owner.decisions],
        "memory": [_memory(name, each) for name, each in graph.memory],
        "source": graph.source,
        "units": list(graph.units),
    }


def _kernel(report: KernelReport, explanation: Explanation) -> dict[str, Any]:
    """Return the document of one launch."""
    return {
        "kernel": report.kernel.name,
        "step": _step(report.step),
        "device": report.device,
        "operations": list(report.operations),
        "lines": list(report.lines),
        "tiles": report.tiles,
        "tuned": report.tuned,
        "bytes": report.nbytes,
        "flops": report.flops,
        "seconds": report.seconds,
        "lost_seconds": explanation.lost_seconds(report),
        "subkernels": [asdict(each) for each in report.subkernels],
    }


def _call(report: CallReport) -> dict[str, Any]:
    """Return the document of one library call."""
    return {
        "target": report.target,
        "step": _step(report.step),
        "reason": report.reason,
        "line": report.line,
        "bytes": report.nbytes,
        "flops": report.flops,
        "seconds": report.seconds,
    }


def _region(report: RegionReport, symbols: SymbolTable) -> dict[str, Any]:
    """Return the document of one region."""
    return {
        "kind": report.kind,
        "step": _step(report.step),
        "plans": list(report.plans),
        "line": report.line,
        "frozen": report.frozen,
        "frozen_bytes": symbols.hint(report.frozen_bytes),
        "parameters": report.parameters,
        "constant_folded": dict(report.constant_folded),
    }


def _fallback(cost: FallbackCost) -> dict[str, Any]:
    """Return the document of operations that run as ATen."""
    return {
        "target": cost.target,
        "reason": cost.reason,
        "lines": list(cost.lines),
        "calls": cost.calls,
        "bytes": cost.nbytes,
        "seconds": cost.seconds,
    }


def _decision(decision: Decision, owner: Plan) -> dict[str, Any]:
    """Return the document of one decision."""
    return {
        "plan": owner.name,
        "stage": decision.stage,
        "about": decision.subject,
        "verdict": decision.verdict,
        "reason": decision.reason.key,
        "sentence": decision.reason.sentence,
        "bytes": owner.symbols.hint(decision.bytes),
        "note": decision.note,
    }


def _memory(name: str, timeline: MemoryTimeline) -> dict[str, Any]:
    """Return the document of the memory of one plan."""
    return {
        "plan": name,
        "peak_bytes": timeline.peak,
        "peak_step": timeline.peak_step,
        "live_bytes": list(timeline.live),
        "owners": [asdict(owner) for owner in timeline.owners],
    }


def _step(step: StepId | None) -> dict[str, Any] | None:
    """Return the document of a step's position."""
    return None if step is None else asdict(step)
