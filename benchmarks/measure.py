"""Time one case under one backend in this process and print one line of JSON: `run.py` calls it.

The line has the first call in seconds (capture and compile included), the median and the tenth percentile of
a steady call in seconds, how many calls were timed, the most memory that a call has allocated at once through
torch's allocator, in bytes, and the greatest relative error against eager over all results (in training, all
gradients) and mutated arguments. The backend `dynamo` captures graphs and runs them as they came.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cases import CASES
from models import relative_error, tensors
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

Step = Callable[[Callable[..., Any]], list[Tensor]]
WARM_CALLS, LEAST_CALLS = 3, 7


def inference_step(args: tuple[Any, ...]) -> Step:
    """Return a step that calls a function without gradients and gives its results."""

    def step(function: Callable[..., Any]) -> list[Tensor]:
        with torch.no_grad():
            return tensors(function(*args))

    return step


def training_step(program: Callable[..., Any], args: tuple[Any, ...]) -> Step:
    """Return a step that calls a function forwards and backwards and gives the gradients."""
    if isinstance(program, nn.Module):
        program.train()
        for module in program.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0  # random masks would make the gradients incomparable
        leaves: list[Tensor] = list(program.parameters())
    else:
        leaves = [arg for arg in args if isinstance(arg, Tensor) and arg.is_floating_point()]
        for leaf in leaves:
            leaf.requires_grad_()

    def step(function: Callable[..., Any]) -> list[Tensor]:
        for leaf in leaves:
            leaf.grad = None
        results = [result for result in tensors(function(*args)) if result.is_floating_point()]
        loss = torch.stack([result.float().square().mean() for result in results]).sum()
        loss.backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    return step


def compiled(program: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """Return the program compiled by a backend; `litz-dynamic` is litz with symbolic sizes from the first call."""
    if backend == "dynamo":
        return torch.compile(program, backend="eager")
    known = backend.removesuffix("-dynamic")
    return torch.compile(program, backend=known, dynamic=True if known != backend else None)


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the greatest sum, at any moment of a call, of the memory that it had allocated and not yet freed."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    with tempfile.TemporaryDirectory(prefix="litz-bench-") as folder:
        path = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted(
        (event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]"
    )
    live = peak = 0
    for _, change in changes:
        live += change
        peak = max(peak, live)
    return peak


@dataclass(frozen=True, slots=True)
class Trial:
    """A case: its program, its arguments, copies of their first values, and one step of it."""

    program: Callable[..., Any]
    args: tuple[Any, ...]
    saved_args: tuple[Any, ...]
    step: Step

    def observe(self, function: Callable[..., Any]) -> tuple[list[Tensor], float]:
        """Call once; results, arguments as the call left them (then set back), and the seconds it took."""
        start = time.perf_counter()
        results = self.step(function)
        taken = time.perf_counter() - start
        seen = [tensor.detach().clone() for tensor in [*results, *tensors(self.args)]]
        with torch.no_grad():
            for arg, value in zip(self.args, self.saved_args, strict=True):
                if isinstance(arg, Tensor) and not torch.equal(arg, value):
                    arg.copy_(value)
        return seen, taken


def trial(name: str, mode: str) -> Trial:
    """Build a case from a fixed seed, for inference or training."""
    torch.manual_seed(0)
    program, args = CASES[name].build()
    saved_args = tuple(arg.detach().clone() if isinstance(arg, Tensor) else arg for arg in args)
    step = training_step(program, args) if mode == "train" else inference_step(args)
    return Trial(program, args, saved_args, step)


def measure(name: str, backend: str, mode: str, seconds: float) -> dict[str, Any]:
    """Time a case and compare its first results, and what it did to its arguments, with eager's."""
    made = trial(name, mode)
    step = made.step
    function = made.program if backend == "eager" else compiled(made.program, backend)
    got, first = made.observe(function)
    error = None if backend == "eager" else relative_error(got, made.observe(made.program)[0])
    for _ in range(WARM_CALLS):
        step(function)
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < LEAST_CALLS or time.perf_counter() < end:
        start = time.perf_counter()
        step(function)
        samples.append(time.perf_counter() - start)
    samples.sort()
    return {
        "case": name,
        "backend": backend,
        "mode": mode,
        "first": first,
        "median": samples[len(samples) // 2],
        "low": samples[len(samples) // 10],
        "calls": len(samples),
        "peak": peak_bytes(lambda: step(function)),
        "error": error,
    }


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("backend")
    parser.add_argument("mode", choices=("infer", "train"))
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    print(json.dumps(measure(options.case, options.backend, options.mode, options.seconds)))


if __name__ == "__main__":
    main()
