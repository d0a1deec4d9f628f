"""Comparison of a module program in eager and compiled, call by call."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import litz
from differential.judge import WIDENED, Verdict, complaints, values_differ
from differential.modules import CALLS, Compile, ModuleProgram, Run, smaller, surroundings

FORCED = "linear_flops=1"
"""The scheduler option with which the weight of every f32 matmul is prepacked, however small."""


def judge_module(drawn: ModuleProgram) -> Verdict:
    """Compare a module compiled by litz with eager, at every call."""
    try:
        wanted = _calls(drawn, lambda function: function)
    except Exception as error:
        return Verdict("rejected", f"{type(error).__name__}: {error}")
    message = _difference(drawn, "litz", wanted)
    if message is None:
        return Verdict("none")
    theirs = _difference(drawn, "aot_eager", wanted)
    return Verdict("litz" if theirs is None else "torch", message if theirs is None else theirs)


def shrunk_module(
    drawn: ModuleProgram, wrong: Callable[[ModuleProgram], bool], *, budget: int = 120
) -> ModuleProgram:
    """Shrink a module program that is ``wrong``, in at most ``budget`` runs."""
    trials = 0
    while True:
        for candidate in smaller(drawn):
            trials += 1
            if trials > budget:
                return drawn
            if wrong(candidate):
                drawn = candidate
                break
        else:
            return drawn


def _calls(drawn: ModuleProgram, compile_: Compile) -> list[list[Any]]:
    with surroundings(drawn), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Run.of(drawn, compile_)
        return [run.step(k) for k in range(CALLS)]


def _difference(drawn: ModuleProgram, backend: str, wanted: list[list[Any]]) -> str | None:
    torch._dynamo.reset()

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        made: Callable[..., Any] = torch.compile(
            function, backend=backend, fullgraph=True, dynamic=drawn.program.dynamic or None
        )
        return made

    with litz.config.patch(cache=False, force=FORCED), complaints() as said:
        try:
            got = _calls(drawn, compiled)
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:600]}"
    if said:
        return f"litz gave up: {said[0][:600]}"
    least = WIDENED if drawn.program.has_bf16 else 0.0
    for call, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
        found = _apart(mine, theirs, least)
        if found is not None:
            return f"call {call}: {found}"
    return None


def _apart(mine: Any, theirs: Any, least: float, where: str = "") -> str | None:
    """Describe the difference of two observations of a run, and its position in them."""
    if isinstance(theirs, Tensor) and isinstance(mine, Tensor):
        found = values_differ(mine, theirs, least)
        return None if found is None else f"{where}: {found}"
    if isinstance(theirs, list | tuple) and isinstance(mine, list | tuple):
        if len(mine) != len(theirs):
            return f"{where}: {len(mine)} items, eager has {len(theirs)}"
        pairs = enumerate(zip(mine, theirs, strict=True))
        parts = (_apart(a, b, least, f"{where}[{k}]") for k, (a, b) in pairs)
        return next((part for part in parts if part is not None), None)
    return (
        None if mine == theirs and type(mine) is type(theirs) else f"{where}: {mine!r}, eager has {theirs!r}"
    )
