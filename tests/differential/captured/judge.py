"""Comparison of a captured program in eager and compiled, call by call."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import litz
from differential.captured.program import CapturedProgram
from differential.captured.session import Kept, Seen, run
from differential.judge import WIDENED, Verdict, complaints, values_differ

LIMIT = 64
"""Recompilations before Dynamo gives up: calls change sizes, dtypes, modes and numbers."""


def judge_captured(program: CapturedProgram) -> Verdict:
    """Compare a program compiled by litz with eager, and where they differ, with ``aot_eager``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = run(program, lambda module: module)
    except Exception as error:
        return Verdict("rejected", f"{type(error).__name__}: {error}")
    message = _compiled(program, "litz", expected)
    if message is None:
        return Verdict("none")
    theirs = _compiled(program, "aot_eager", expected)
    return Verdict("litz" if theirs is None else "torch", message if theirs is None else theirs)


def shrunk_captured(
    program: CapturedProgram, wrong: Callable[[CapturedProgram], bool], *, budget: int = 60
) -> CapturedProgram:
    """Shrink a program that is ``wrong``, in at most ``budget`` runs."""
    trials = 0
    while True:
        for candidate in program.smaller():
            trials += 1
            if trials > budget:
                return program
            if wrong(candidate):
                program = candidate
                break
        else:
            return program


def _compiled(program: CapturedProgram, backend: str, expected: list[Seen]) -> str | None:
    """Describe the difference of the program compiled by ``backend`` from eager; ``None`` where there is none."""
    torch._dynamo.reset()

    def compile_(module: nn.Module) -> Callable[..., Any]:
        result: Callable[..., Any] = torch.compile(
            module, backend=backend, dynamic=program.dynamic, fullgraph=program.saved
        )
        return result

    limits = torch._dynamo.config.patch(recompile_limit=LIMIT, accumulated_recompile_limit=LIMIT)
    with limits, litz.config.patch(cache=False), warnings.catch_warnings(), complaints() as said:
        warnings.simplefilter("ignore")
        try:
            actual = run(program, compile_)
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:600]}"
    if said:
        return f"litz gave up: {said[0][:600]}"
    narrow = any(call.mode.startswith("autocast") for call in program.calls) or "autocast" in program.source()
    for number, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        text = _difference(mine, theirs, WIDENED * 5 if narrow else 1e-3)
        if text is not None:
            return f"call {number}: {text}"
    return None


def _difference(mine: Seen, theirs: Seen, least: float) -> str | None:
    if [label for label, _ in mine.values] != [label for label, _ in theirs.values]:
        return f"{[label for label, _ in mine.values]}, eager has {[label for label, _ in theirs.values]}"
    for (label, a), (_, b) in zip(mine.values, theirs.values, strict=True):
        text = _values(a, b, least)
        if text is not None:
            return f"{label}: {text}"
    if mine.structure != theirs.structure:
        return f"structure {mine.structure}, eager's is {theirs.structure}"
    if mine.shared != theirs.shared:
        return f"shared memory {mine.shared}, in eager {theirs.shared}"
    return None


def _values(a: Any, b: Any, least: float) -> str | None:
    if isinstance(a, Kept) and isinstance(b, Kept):
        for name in ("strides", "requires_grad"):
            if getattr(a, name) != getattr(b, name):
                return f"{name} {getattr(a, name)}, eager's {getattr(b, name)}"
        return values_differ(a.tensor, b.tensor, least)
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return f"{a!r}, eager has {b!r}"
    return None if type(a) is type(b) and (a == b or (a != a and b != b)) else f"{a!r}, eager has {b!r}"
