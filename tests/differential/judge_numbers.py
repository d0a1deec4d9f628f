"""Comparison of a program over changing numbers in eager and compiled, call by call, with a cold and a warm cache."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

import litz
from differential.judge import WIDENED, Verdict, complaints, values_differ
from differential.number_programs import CALLS, NumberProgram, NumberRun, smaller_number_programs

ROUNDS: tuple[Sequence[int], ...] = (tuple(range(CALLS)), tuple(reversed(range(CALLS))))
"""Calls of each compilation of a program, in order: the second has the cache of the first, as another process has."""


def judge_numbers(program: NumberProgram) -> Verdict:
    """Compare a program compiled by litz with eager, at every call of every round."""
    try:
        wanted = [_calls(program, order, lambda function: function) for order in ROUNDS]
    except Exception as error:
        return Verdict("rejected", f"{type(error).__name__}: {error}")
    message = _difference(program, "litz", wanted)
    if message is None:
        return Verdict("none")
    theirs = _difference(program, "aot_eager", wanted[:1])
    return Verdict("litz" if theirs is None else "torch", message if theirs is None else theirs)


def shrunk_numbers(
    program: NumberProgram, wrong: Callable[[NumberProgram], bool], *, budget: int = 30
) -> NumberProgram:
    """Shrink a program that is ``wrong``, in at most ``budget`` runs."""
    for _ in range(budget):
        smaller = next((each for each in smaller_number_programs(program) if wrong(each)), None)
        if smaller is None:
            break
        program = smaller
    return program


def _calls(program: NumberProgram, order: Sequence[int], compile_: Callable[[Any], Any]) -> list[list[Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = NumberRun.of(program, compile_)
        return [run.step(k) for k in order]


def _difference(program: NumberProgram, backend: str, wanted: list[list[list[Any]]]) -> str | None:
    def compiled(function: Any) -> Any:
        return torch.compile(function, backend=backend, dynamic=program.dynamic)

    with (
        TemporaryDirectory() as folder,
        litz.config.patch(cache=True, cache_dir=folder),
        complaints() as said,
    ):
        for number, (order, expected) in enumerate(zip(ROUNDS, wanted, strict=False)):
            torch._dynamo.reset()
            try:
                got = _calls(program, order, compiled)
            except Exception as error:
                return f"round {number}: {type(error).__name__}: {str(error)[:600]}"
            if said:
                return f"round {number}: litz gave up: {said[0][:600]}"
            for call, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
                found = _apart(mine, theirs, WIDENED if program.dtype == torch.bfloat16 else 0.0)
                if found is not None:
                    return f"round {number}, call {call}: {found}"
    return None


def _apart(mine: list[Any], theirs: list[Any], least: float) -> str | None:
    """Describe the first difference of two lists of results."""
    for position, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            found = values_differ(a, b, least)
            if found is not None:
                return f"result {position}: {found}"
        elif type(a) is not type(b) or not (a == b or (a != a and b != b)):
            return f"result {position}: {a!r}, eager has {b!r}"
    return None
