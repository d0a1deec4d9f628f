"""Process of one case: builds the model, runs it in every way and reports to its parent."""

from __future__ import annotations

import functools
import importlib
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from fixed_relu_signs import fixed_relu_signs, observed_relu_signs
from opinfo.watching import Made, Watcher
from scheduled_for_gpu import ScheduledForGpu

import litz
from zoo.cases import Built, Case, NotRunnable, said
from zoo.execution import MODES, Mode, in_double, rounded_otherwise, run
from zoo.judge import Leaves, difference, far_apart
from zoo.row import ELSEWHERE, PASSED, Outcome

OTHER_ROUNDINGS = 3
INTERPRETED = "interpreted"
"""The device of models on the CPU that are scheduled for a GPU."""
INTERPRETING = "zoo.interpreted_kernels"  # needs Triton
BUILDERS = {"transformers": "zoo.transformers_cases", "timm": "zoo.timm_cases"}


def names(library: str) -> list[str]:
    """Return the architectures that a library lists. Raises ``ImportError`` where it is not installed."""
    found: list[str] = importlib.import_module(BUILDERS[library]).names()
    return found


def main(connection: Connection, case: Case, log: str, cache: str, device: str) -> None:
    """Send `("built", title, parameters)`, then an outcome of each mode; or `("eager", error)`."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    torch.set_num_threads(1)
    with warnings.catch_warnings(), litz.config.patch(cache_dir=cache, fallback="warn"):
        warnings.simplefilter("ignore")
        try:
            built = importlib.import_module(BUILDERS[case.library]).build(case.name).on(_chosen(device))
        except NotRunnable as error:
            return connection.send(("eager", str(error)))
        except Exception as error:
            return connection.send(("eager", said(error)))
        count = sum(parameter.numel() for parameter in built.model.parameters())
        connection.send(("built", built.title, count))
        for mode in MODES:
            try:
                eager = run(built.model, built.inputs, mode)
            except Exception as error:
                return connection.send(("eager", f"{mode}: {said(error)}"))
            try:
                outcome = judged(built, mode, eager, interpreted=device == INTERPRETED)
            except Exception as error:  # as after a failed assert in a kernel, which ends all work on its GPU
                return connection.send((mode, Outcome("crash", said(error))))
            connection.send((mode, outcome))


def _chosen(device: str) -> torch.device:
    """Return a device of that kind, which becomes the process's current one: of several GPUs each process takes one.

    Convolutions have all bits of f32: which of them eager's library rounds to TF32 depends on their sizes.
    """
    if device == INTERPRETED:
        return torch.device("cpu")
    if device == "cuda":
        torch.backends.cudnn.allow_tf32 = False
        torch.cuda.set_device(os.getpid() % torch.cuda.device_count())
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(device)


def judged(built: Built, mode: Mode, expected: Leaves, *, interpreted: bool = False) -> Outcome:
    """Run a model compiled, or a GPU's kernels ``interpreted``, and compare it with eager; where they differ, once more
    without litz."""
    torch._dynamo.reset()
    exact, single = reference(built, mode, expected)
    watcher, spent = Watcher(), Stopwatch()
    backend = importlib.import_module(INTERPRETING).interpreting_backend() if interpreted else watcher
    with watcher.watching() as made:
        found = _difference(built, mode, expected, exact, functools.partial(spent.compiled, backend=backend))
    verdict, reason = (PASSED, "") if found is None else found
    free_signs = ""
    if found is not None and right_with_fixed_signs(built, mode, found, backend):
        verdict, reason, free_signs = PASSED, "", reason
    left = made.fell_back()
    if verdict == PASSED and left is not None:
        verdict, reason = "fell back", left
    elif verdict != PASSED:
        torch._dynamo.reset()
        other = _difference(
            built, mode, expected, exact, functools.partial(torch.compile, backend="aot_eager")
        )
        if other is not None and other[0] == verdict:
            verdict, reason = ELSEWHERE, f"{reason}; aot_eager: {other[1]}"
    graphs, kernels = len(made.compiled), made.kernels()
    if isinstance(backend, ScheduledForGpu):
        graphs, kernels = len(backend.plans), sum(len(plan.kernels) for plan in backend.plans.values())
    seconds = round(spent.seconds, 2)
    return Outcome(verdict, reason, graphs, kernels, _fallbacks(made), seconds, single, free_signs)


class Stopwatch:
    """Compiles a model and keeps the time of its first call."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def compiled(self, model: torch.nn.Module, backend: Any) -> Callable[..., Any]:
        """Compile a model."""
        call = torch.compile(model, backend=backend)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = call(*args, **kwargs)
            self.seconds = self.seconds or time.perf_counter() - start
            return result

        return timed


def _difference(
    built: Built, mode: Mode, expected: Leaves, exact: Leaves, wrap: Any
) -> tuple[str, str] | None:
    """Return a verdict and its reason, or ``None`` where a run is right."""
    try:
        actual = run(built.model, built.inputs, mode, wrap)
    except Exception as error:
        return "raises", said(error)

    def further() -> list[Leaves]:
        return [rounded_otherwise(built.model, built.inputs, mode, seed) for seed in range(OTHER_ROUNDINGS)]

    found = difference(actual, expected, exact, further)
    return None if found is None else ("wrong", found)


def right_with_fixed_signs(built: Built, mode: Mode, found: tuple[str, str], backend: Any = "litz") -> bool:
    """Report that wrong gradients are right with the ReLU masks of double precision."""
    if found[0] != "wrong" or not found[1].startswith("gradient"):
        return False
    with observed_relu_signs(built.model) as signs:
        in_double(built.model, built.inputs, mode)
    if not signs:
        return False
    with fixed_relu_signs(built.model, signs):
        expected = run(built.model, built.inputs, mode)
        exact, _ = reference(built, mode, expected)
        torch._dynamo.reset()
        wrap = functools.partial(torch.compile, backend=backend)
        return _difference(built, mode, expected, exact, wrap) is None


def reference(built: Built, mode: Mode, expected: Leaves) -> tuple[Leaves, str]:
    """Return the exact tensors: eager's in double precision, or, where that takes another branch (the second result
    says where), eager's in single precision from weights rounded otherwise."""
    try:
        exact = in_double(built.model, built.inputs, mode)
        apart = far_apart(expected, exact)
    except Exception as error:
        apart = said(error)
    if apart is None:
        return exact, ""
    other = rounded_otherwise(built.model, built.inputs, mode, OTHER_ROUNDINGS)
    return other, apart if far_apart(expected, other) is None else f"{apart}, as do other roundings"


def _fallbacks(made: Made) -> dict[str, int]:
    left = [one for compiled in made.compiled if compiled.artifact for one in compiled.artifact.fallbacks]
    return dict(Counter(one.reason for one in left).most_common())
