"""Compile two models and three small programs with litz on this CPU, and print how they fare against eager.

Weights are random and nothing is downloaded. Exit code 1 when a result is off by more than its bound.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from cases import CASES, Case
from models import relative_error, tensors
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import litz

SHOWN = ("gpt2", "convolutional", "masked_softmax", "residual_layer_norm", "bias_gelu_residual")
ROUNDS, STEPS = 30, 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one program: milliseconds a call, seconds of the first call, error, kernels, ATen calls."""

    case: Case
    eager_ms: float
    litz_ms: float
    first_s: float
    error: float
    kernels: int
    aten: int

    @property
    def within(self) -> bool:
        """Report that the error is within the case's bound; a NaN is not."""
        return self.error <= self.case.bound


def milliseconds(one: Callable[..., Any], other: Callable[..., Any], args: tuple[Any, ...]) -> list[float]:
    """Return the median time of a call of each, in ms; calls alternate, so that both run under the same load."""
    samples: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for index, function in enumerate((one, other)):
            start = time.perf_counter()
            function(*args)
            samples[index].append((time.perf_counter() - start) * 1e3)
    return [statistics.median(kept[ROUNDS // 5 :]) for kept in samples]


def run(case: Case, advance: Callable[[str], None]) -> Outcome:
    """Compile one case, compare it with eager and time both; `advance` is called with the name of each step."""
    advance("build")
    torch.manual_seed(0)
    program, args = case.build()
    wanted = tensors(program(*args))
    advance("compile")
    compiled = torch.compile(program, backend="litz")
    start = time.perf_counter()
    got = tensors(compiled(*args))
    first = time.perf_counter() - start
    error = relative_error(got, wanted)
    advance("time")
    eager_ms, litz_ms = milliseconds(program, compiled, args)
    advance("explain")
    report = litz.explain(program, *args)
    return Outcome(case, eager_ms, litz_ms, first, error, len(report.kernels), len(report.calls))


WIDTH = 100


def table_of(outcomes: list[Outcome]) -> Table:
    """Return the table that is printed at the end."""
    table = Table(title="litz on this CPU")
    table.add_column("program", no_wrap=True)
    for heading in (
        "eager\nms",
        "litz\nms",
        "ratio",
        "first\ncall s",
        "max\nerror",
        "kernels",
        "left to\nATen",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in outcomes:
        table.add_row(
            one.case.name,
            f"{one.eager_ms:.2f}",
            f"{one.litz_ms:.2f}",
            f"{one.eager_ms / one.litz_ms:.2f}x",
            f"{one.first_s:.2f}",
            f"{one.error:.1e}" if one.within else f"[red]{one.error:.1e}[/red]",
            str(one.kernels),
            str(one.aten),
        )
    return table


def main() -> int:
    """Run the shown cases without gradients on a fresh cache folder."""
    console, outcomes = Console(), []
    if console.width < WIDTH:
        console = Console(width=WIDTH)  # a pipe says 80, which would cut the figures
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="litz-demo-") as folder,
        Progress(*columns, console=console) as bar,
    ):
        task = bar.add_task("", total=STEPS * len(SHOWN))
        with torch.no_grad(), litz.config.patch(cache_dir=folder):
            for name in SHOWN:

                def advance(step: str, name: str = name) -> None:
                    bar.update(task, advance=1, description=f"{name}: {step}")

                outcomes.append(run(CASES[name], advance))
    console.print(table_of(outcomes))
    mean = math.exp(statistics.fmean(math.log(one.eager_ms / one.litz_ms) for one in outcomes))
    worst = min(outcomes, key=lambda one: one.eager_ms / one.litz_ms)
    console.print(
        f"geometric mean {mean:.2f}x eager, worst {worst.eager_ms / worst.litz_ms:.2f}x ({worst.case.name})",
        highlight=False,
    )
    for one in outcomes:
        if not one.within:
            console.print(
                f"broken: {one.case.name} is off by {one.error:.1e}, bound {one.case.bound:.0e}", style="red"
            )
    return 0 if all(one.within for one in outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
