"""Runs of a program, and the tensors that they leave."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree
from zoo.judge import Leaves, far_apart

from ecosystem.draws import InDouble, RoundedOtherwise
from ecosystem.programs import Backend, Prepare, Step

SEED = 42
ENOUGH, AT_LEAST, AT_MOST = 0.5, 2, 20
"""Seconds for which calls are timed, and the numbers of them."""


def prepared(prepare: Prepare, backend: Backend) -> Step:
    """Return the steps of a program that draws its numbers from the start."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    numpy.random.seed(SEED)
    return prepare(backend)


def results(step: Step, numbers: Iterable[int]) -> Leaves:
    """Run the steps of these numbers and return their results by label."""
    return {label: tensor for number in numbers for label, tensor in _labelled(step(number), number)}


def _labelled(result: Any, number: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors and numbers of a result, as they are now."""
    named = result if isinstance(result, dict) else {"output": result}
    for key, value in named.items():
        kind, _, rest = str(key).partition(" ")
        for position, leaf in enumerate(pytree.tree_leaves(value)):
            if isinstance(leaf, bool | int | float):
                leaf = torch.tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else torch.int64)
            if isinstance(leaf, torch.Tensor):
                yield f"{kind} {number} {rest}.{position}", leaf.detach().clone()


def seconds_of_call(step: Step) -> float:
    """Return the shortest time of the first step, in seconds."""
    times: list[float] = []
    while len(times) < AT_LEAST or (sum(times) < ENOUGH and len(times) < AT_MOST):
        start = time.perf_counter()
        step(0)
        times.append(time.perf_counter() - start)
    return min(times)


def in_double(prepare: Prepare, steps: range) -> Leaves:
    """Run a program's eager form in double precision."""
    torch.set_default_dtype(torch.float64)
    try:
        with InDouble():  # type: ignore[no-untyped-call]
            return results(prepared(prepare, Backend()), steps)
    finally:
        torch.set_default_dtype(torch.float32)


def rounded_otherwise(prepare: Prepare, steps: range, seed: int) -> Leaves:
    """Run a program's eager form from numbers that are rounded otherwise."""
    with RoundedOtherwise(seed):
        return results(prepared(prepare, Backend()), steps)


def reference(prepare: Prepare, steps: range, expected: Leaves) -> tuple[Leaves, str]:
    """Return the exact tensors: eager's in double precision or, where that is another computation (the second result
    says in what), in single precision from numbers rounded otherwise."""
    try:
        exact = in_double(prepare, steps)
        apart = far_apart(expected, exact)
    except Exception as error:
        apart = said(error)
    if apart is None:
        return exact, ""
    other = rounded_otherwise(prepare, steps, SEED)
    return other, apart if far_apart(expected, other) is None else f"{apart}, as do other roundings"


def said(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
