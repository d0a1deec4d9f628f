"""Run of a report's program under a backend, and its difference from eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from differential.judge import complaints, items_differ, tensors_differ
from torch.utils import _pytree as pytree

import litz
from reports.table import Raised, Report

Verdict = Literal["as eager", "as aot_eager", "wrong"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything compared of a run: leaves and their structure, or the class of the exception that ended it."""

    leaves: tuple[Any, ...] = ()
    structure: str = ""
    shared: tuple[tuple[int, int, int], ...] = ()
    gave_up: str = ""


def run(report: Report, backend: str) -> Outcome:
    """Run the program of a report under ``eager`` (uncompiled) or a backend of ``torch.compile``."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    quiet = litz.config.patch(cache=False) if backend == "litz" else nullcontext()
    with warnings.catch_warnings(), quiet, complaints(of_refusals=False) as said:
        warnings.simplefilter("ignore")
        try:
            result = report.program(_compiler(backend))
        except Exception as error:
            result = Raised.of(error)
    leaves, structure = pytree.tree_flatten(result)
    return Outcome(tuple(leaves), str(structure), _shared(leaves), said[0] if said else "")


def difference(actual: Outcome, expected: Outcome) -> str:
    """Describe the first difference of two runs; empty where there is none."""
    if actual.gave_up:
        return f"gave up: {actual.gave_up}"
    pairs = zip(actual.leaves, expected.leaves)
    for k, (a, b) in enumerate(pairs):
        text = _differ(a, b)
        if text:
            return f"{k}: {text}"
    if actual.structure != expected.structure:
        return f"{actual.structure}, eager's is {expected.structure}"
    if actual.shared != expected.shared:
        return f"shared memory {actual.shared}, in eager {expected.shared}"
    return ""


def judge(report: Report, backend: str = "litz") -> tuple[Verdict, str]:
    """Compare a backend with eager, and where they differ, with ``aot_eager``, whose faults are torch's."""
    expected = run(report, "eager")
    text = difference(run(report, backend), expected)
    if not text:
        return "as eager", ""
    return ("as aot_eager" if difference(run(report, "aot_eager"), expected) else "wrong"), text


def _compiler(backend: str) -> Callable[..., Any]:
    def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        if backend == "eager":
            return function
        result: Callable[..., Any] = torch.compile(function, backend=backend, **options)
        return result

    return compiled


def _shared(leaves: list[Any]) -> tuple[tuple[int, int, int], ...]:
    """Return the pairs of tensors in the same memory, and the bytes between their starts."""
    tensors = [
        (k, x) for k, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.layout == torch.strided
    ]
    found = []
    for i, (k, a) in enumerate(tensors):
        for j, b in tensors[i + 1 :]:
            if a.untyped_storage()._cdata == b.untyped_storage()._cdata:
                start = a.storage_offset() * a.element_size() - b.storage_offset() * b.element_size()
                found.append((k, j, start))
    return tuple(found)


def _shown(leaf: Any) -> str:
    return f"raises {leaf.classes[0]}" if isinstance(leaf, Raised) else f"gives {type(leaf).__name__}"


def _differ(a: Any, b: Any) -> str:
    if isinstance(a, Raised):
        return "" if a.is_a(b) else f"raises {a.classes[0]}, eager {_shown(b)}"
    if isinstance(b, Raised):
        return f"gives {type(a).__name__}, eager {_shown(b)}"
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return tensors_differ(a, b, 0.0) or ""
    return items_differ(a, b, 0.0) or ""
