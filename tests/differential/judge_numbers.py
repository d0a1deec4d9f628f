"""Comparison of a program over changing numbers in eager and compiled, call by call, with a cold and a warm cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch._dynamo.backends.registry import lookup_backend

from differential.judge import WIDENED, Verdict, compiled_calls_differ, items_differ, judge_by
from differential.number_programs import CALLS, NumberProgram, NumberRun

ROUNDS: tuple[Sequence[int], ...] = (tuple(range(CALLS)), tuple(reversed(range(CALLS))))
"""Calls of each compilation of a program, in order: the second has the cache of the first, as another process has."""


def judge_numbers(program: NumberProgram) -> Verdict:
    """Compare a program compiled by litz with eager, at every call of every round."""
    return judge_by(
        lambda: [_calls(program, order, lambda function: function) for order in ROUNDS],
        partial(_difference, program),
    )


def _calls(program: NumberProgram, order: Sequence[int], compile_: Callable[[Any], Any]) -> list[list[Any]]:
    run = NumberRun.of(program, compile_)
    return [run.step(k) for k in order]


def _difference(program: NumberProgram, backend: str, wanted: list[list[list[Any]]]) -> str | None:
    skipped: list[str] = []

    def compiled(function: Any) -> Any:
        chosen: Any = backend if backend == "litz" else _collecting(backend, skipped)
        return torch.compile(function, backend=chosen, dynamic=program.dynamic)

    least = WIDENED if program.dtype == torch.bfloat16 else 0.0
    with TemporaryDirectory() as folder:
        for number, (order, expected) in enumerate(zip(ROUNDS, wanted, strict=True)):
            message = compiled_calls_differ(
                lambda order=order: _calls(program, order, compiled),  # type: ignore[misc]
                expected,
                lambda mine, theirs: items_differ(mine, theirs, least),
                cache=True,
                cache_dir=folder,
            )
            message = message or (skipped[0] if skipped else None)
            if message is not None:
                return f"round {number}, {message}"
    return None


def _collecting(name: str, skipped: list[str]) -> Callable[..., Any]:
    """Return a backend that adds the errors of graphs which Dynamo leaves to eager to ``skipped``."""
    backend = lookup_backend(name)

    def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            return backend(graph, list(inputs))
        except Exception as error:
            skipped.append(f"{name} gave up: {error}")
            raise

    return compile_graph
