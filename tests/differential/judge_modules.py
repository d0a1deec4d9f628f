"""Comparison of a module program in eager and compiled, call by call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from differential.judge import WIDENED, Verdict, compiled_calls_differ, items_differ, judge_by
from differential.modules import CALLS, Compile, ModuleProgram, Run, surroundings

FORCED = "linear_flops=1"
"""The scheduler option with which the weight of every f32 matmul is prepacked, however small."""


def judge_module(drawn: ModuleProgram) -> Verdict:
    """Compare a module compiled by litz with eager, at every call."""
    return judge_by(
        lambda: _calls(drawn, lambda function: function),
        lambda backend, wanted: _difference(drawn, backend, wanted),
    )


def _calls(drawn: ModuleProgram, compile_: Compile) -> list[list[Any]]:
    with surroundings(drawn):
        run = Run.of(drawn, compile_)
        return [run.step(k) for k in range(CALLS)]


def _difference(drawn: ModuleProgram, backend: str, wanted: list[list[Any]]) -> str | None:
    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        made: Callable[..., Any] = torch.compile(
            function, backend=backend, fullgraph=True, dynamic=drawn.program.dynamic or None
        )
        return made

    least = WIDENED if drawn.program.has_bf16 else 0.0
    return compiled_calls_differ(
        lambda: _calls(drawn, compiled),
        wanted,
        lambda mine, theirs: items_differ(mine, theirs, least),
        cache=False,
        force=FORCED,
    )
