"""Comparison of a captured program in eager and compiled, call by call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from differential.captured.program import CapturedProgram
from differential.captured.session import Kept, Seen, run
from differential.judge import (
    WIDENED,
    Verdict,
    compiled_calls_differ,
    items_differ,
    judge_by,
    values_differ,
)

REFUSED = "ArtifactError: artifact: this function cannot be compiled ahead of time: "

ROUNDS = ("", "from the cache, ")
"""Compilations of a program, as a difference names them: the second finds the first one's results, as another process
does."""

LIMIT = 64
"""Recompilations before Dynamo gives up: calls change sizes, dtypes, modes and numbers."""


def judge_captured(program: CapturedProgram) -> Verdict:
    """Compare a program compiled by litz with eager, and where they differ, with ``aot_eager``. A program that is not
    compiled ahead of time, which the error says, is rejected."""
    verdict = judge_by(
        lambda: run(program, lambda module: module),
        lambda backend, expected: _compiled(program, backend, expected),
    )
    return replace(verdict, fault="rejected") if verdict.message.startswith(REFUSED) else verdict


def _compiled(program: CapturedProgram, backend: str, expected: list[Seen]) -> str | None:
    """Describe the difference of the program compiled by ``backend`` from eager; ``None`` where there is none. Litz
    compiles it twice, but a program that is saved."""

    def compile_(module: nn.Module) -> Callable[..., Any]:
        result: Callable[..., Any] = torch.compile(
            module, backend=backend, dynamic=program.dynamic, fullgraph=program.saved
        )
        return result

    narrow = any(call.mode.startswith("autocast") for call in program.calls) or "autocast" in program.source()
    least = WIDENED * 5 if narrow else 1e-3
    with torch._dynamo.config.patch(recompile_limit=LIMIT, accumulated_recompile_limit=LIMIT):
        for name in ROUNDS if backend == "litz" and not program.saved else ROUNDS[:1]:
            message = compiled_calls_differ(
                lambda: run(program, compile_), expected, lambda a, b: _difference(a, b, least)
            )
            if message is not None:
                return f"{name}{message}"
    return None


def _difference(mine: Seen, theirs: Seen, least: float) -> str | None:
    if [label for label, _ in mine.values] != [label for label, _ in theirs.values]:
        return f"{[label for label, _ in mine.values]}, eager has {[label for label, _ in theirs.values]}"
    for (label, a), (_, b) in zip(mine.values, theirs.values, strict=True):
        if "gradient" in label:
            a, b = _or_zeros(a, b), _or_zeros(b, a)
        text = _values(a, b, least)
        if text is not None:
            return f"{label}: {text}"
    if mine.structure != theirs.structure:
        return f"structure {mine.structure}, eager's is {theirs.structure}"
    if mine.shared != theirs.shared:
        return f"shared memory {mine.shared}, in eager {theirs.shared}"
    return None


def _or_zeros(gradient: Any, other: Any) -> Any:
    """Return zeros for a gradient that is none where the other run has one, which may be a rounding error."""
    missing = gradient is None and isinstance(other, Kept)
    return replace(other, tensor=torch.zeros_like(other.tensor)) if missing else gradient


def _values(a: Any, b: Any, least: float) -> str | None:
    if isinstance(a, Kept) and isinstance(b, Kept):
        for name in ("strides", "requires_grad"):
            if getattr(a, name) != getattr(b, name):
                return f"{name} {getattr(a, name)}, eager's {getattr(b, name)}"
        return values_differ(a.tensor, b.tensor, least)
    return items_differ(a, b, least)
