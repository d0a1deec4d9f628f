"""Compare eager, Inductor and litz on the NVIDIA GPU at hand: `python benchmarks/gpu.py --modes infer,train`.

All backends run in one process, one after another for each case, on fresh cache folders. `infer` and `train` are the
cases of `cases.py`: a call and the synchronisation after it, on the host's clock. `large` and `matmuls` are the
programs of `gpu_cases.py`, `rows` those of `gpu_rows.py`, `flex` those of `gpu_flex.py`: time between events over a
run of calls. `row-gradients` and `flex-gradients` time the gradients of the last two alone. For `large` and the rows
the table shows the bytes of inputs and outputs divided by that time, next to the rate of a copy. `--mode` is handed to
`torch.compile` for both; where it tunes, `ready` is the time of the first four calls. Exit code 1 when litz fails or
differs from eager by more than the case's bound.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config
from cases import CASES
from gpu_cases import LARGE, MATMULS
from gpu_flex import FLEX
from gpu_rows import ROWS
from measure import training_step
from models import relative_error, tensors
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

Row = dict[str, Any]
Program = Callable[..., Any]
BACKENDS = ("inductor", "litz")
LARGE_BOUND = 2e-2  # bf16 rounds to eight bits
READY = 3
"""Calls after the first, during which autotuning runs."""

FLEX_BUILDS = {name: case.build for name, case in FLEX.items()}
ON_THE_DEVICE: dict[str, Any] = {
    "large": LARGE,
    "matmuls": MATMULS,
    "rows": ROWS,
    "row-gradients": ROWS,
    "flex": FLEX_BUILDS,
    "flex-gradients": {name: build for name, build in FLEX_BUILDS.items() if FLEX[name].queries > 1},
}
"""The programs of each mode that is timed between events."""
GRADIENTS = frozenset({"row-gradients", "flex-gradients"})
RATED = frozenset({"large", "rows", "row-gradients"})
"""Modes bound by memory, whose tables show bytes per second."""


def moved(value: Any) -> Any:
    """Move an argument, a module or a list of arguments to the GPU."""
    if isinstance(value, Tensor | nn.Module):
        return value.cuda()
    return [moved(each) for each in value] if isinstance(value, list) else value


def cloned(args: Sequence[Any]) -> tuple[Any, ...]:
    """Copy arguments, so that a program may write to them."""

    def clone(value: Any) -> Any:
        if isinstance(value, list):
            return [each.clone() for each in value]
        return value.detach().clone() if isinstance(value, Tensor) else value

    return tuple(map(clone, args))


def flat(values: Sequence[Any]) -> list[Tensor]:
    """Return all tensors in arguments, of which some are lists of tensors."""
    single = (each for value in values for each in (value if isinstance(value, list) else [value]))
    return [each for each in single if isinstance(each, Tensor)]


def norm_error(got: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """Return the norm of all differences over the norm of all expected values. Gradients that are zero but for
    rounding, such as those of a bias in front of a batch norm, then weigh as little as their norm."""
    pairs = [(a.double(), b.double()) for a, b in zip(got, wanted, strict=True)]
    total = sum(float(b.square().sum()) for _, b in pairs)
    return float((sum(float((a - b).square().sum()) for a, b in pairs) / (total + 1e-30)) ** 0.5)


def on_the_host(call: Callable[[], Any], seconds: float) -> float:
    """Return the median seconds of a call and the synchronisation after it."""
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < 7 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - start)
    return sorted(samples)[len(samples) // 2]


def between_events(call: Callable[[], Any], rounds: int = 11, calls: int = 30) -> float:
    """Return the median, over rounds, of the device's seconds for one of several calls."""
    for _ in range(3):
        call()
    samples = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        samples.append(float(start.elapsed_time(end)) / 1e3 / calls)
    return sorted(samples)[rounds // 2]


def copy_rate() -> float:
    """Return the bytes per second of a copy of 1 GiB, counting reads and writes."""
    source = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / between_events(lambda: target.copy_(source))


class Measured:
    """A case on the GPU, with a call of a function and its timing."""

    def __init__(self, name: str, mode: str, seconds: float) -> None:
        torch.manual_seed(0)
        known = ON_THE_DEVICE.get(mode)
        self.large = known is not None
        program, args = CASES[name].build() if known is None else known[name]()
        self.program, self.args = moved(program), tuple(map(moved, args))
        self.bound = LARGE_BOUND if self.large else CASES[name].bound
        self._seconds = seconds
        self._train = training_step(self.program, self.args) if mode == "train" else None
        self._gradients = mode in GRADIENTS
        self._saved_args = cloned(self.args)
        if self._gradients:
            torch._functorch.config.donated_buffer = False  # a backward that runs again needs what was saved
            self._leaves = [each for each in flat(self.args) if each.is_floating_point()]
            for leaf in self._leaves:
                leaf.requires_grad_()
            self._seeds: list[Tensor] = []

    def once(self, function: Program) -> list[Tensor]:
        """Call once; return copies of results or gradients and of written arguments, so that no memory stays
        referenced."""
        if self._train is not None:
            return [each.detach().clone() for each in self._train(function)]
        if self._gradients:
            return list(self._backward(function)())
        args = cloned(self._saved_args)
        with torch.no_grad():
            return [each.clone() for each in (*tensors(function(*args)), *flat(args))]

    def seconds(self, function: Program) -> float:
        """Return the median seconds of a call."""
        if self._train is not None:
            step = self._train
            return on_the_host(lambda: step(function), self._seconds)
        if self._gradients:
            return between_events(self._backward(function))
        with torch.no_grad():
            if self.large:
                return between_events(lambda: function(*self.args))
            return on_the_host(lambda: function(*self.args), self._seconds)

    def _backward(self, function: Program) -> Callable[[], tuple[Tensor, ...]]:
        """Call a function and return its backward, which may run many times."""
        results = tensors(function(*self.args))
        self._seeds = self._seeds or [torch.randn_like(each) for each in results]
        return lambda: torch.autograd.grad(results, self._leaves, self._seeds, retain_graph=True)

    def nbytes(self) -> int:
        """Return the bytes that have to move: reads of arguments, writes of results and of changed arguments; for
        gradients reads of arguments and of the results' gradients, writes of the arguments' gradients."""
        if self._gradients:
            return sum(each.nbytes for each in (*flat(self.args), *self._seeds, *self._leaves))
        before = cloned(self._saved_args)
        results = self.once(self.program)
        outs = results[: len(results) - len(flat(before))]
        changed = zip(flat(before), results[len(outs) :], strict=True)
        written = sum(new.nbytes for old, new in changed if not torch.equal(old, new))
        return sum(each.nbytes for each in (*flat(before), *outs)) + written


def measure(name: str, mode: str, compile_mode: str | None, seconds: float) -> Row:
    """Measure one case under all backends."""
    case = Measured(name, mode, seconds)
    row: Row = {"case": name, "mode": mode}
    expected = case.once(case.program)
    row["eager"] = case.seconds(case.program)
    if mode in RATED:
        row["bytes"] = case.nbytes()
    for backend in BACKENDS:
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        try:
            function = torch.compile(case.program, backend=backend, mode=compile_mode)
            start = time.perf_counter()
            found = case.once(function)
            torch.cuda.synchronize()
            row[f"{backend} first"] = time.perf_counter() - start
            for _ in range(READY):
                found = case.once(function)
            torch.cuda.synchronize()
            row[f"{backend} ready"] = time.perf_counter() - start
            row[f"{backend} error"] = (relative_error if mode not in {"train", *GRADIENTS} else norm_error)(
                found, expected
            )
            del found
            row[backend] = case.seconds(function)
            row[f"{backend} peak"] = torch.cuda.max_memory_allocated()
        except Exception as error:  # whatever a backend raises is a row of the table
            row[f"{backend} failure"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    row["bound"] = case.bound
    return row


def warm_up(compile_mode: str | None) -> None:
    """Warm every backend up: work that is done once per process is not timed."""
    for backend in BACKENDS:
        x = torch.randn(1000, device="cuda", requires_grad=True)
        torch.compile(lambda x: x.sin() * 3, backend=backend, mode=compile_mode)(x).sum().backward()
        torch._dynamo.reset()


def broken(rows: Sequence[Row]) -> list[str]:
    """Return the cases on which litz failed or differs from eager by more than the bound."""
    found = [f"{row['case']} ({row['mode']}): {row['litz failure']}" for row in rows if "litz failure" in row]
    off = [row for row in rows if not row.get("litz error", 0.0) <= row["bound"]]
    return found + [f"{row['case']} ({row['mode']}): error {row['litz error']:.1e}" for row in off]


def tables(rows: Sequence[Row], rate: float, compiling: str) -> list[list[list[str]]]:
    """Return for each mode a table as rows of cells, with its head first; ``compiling`` names the compile time that it
    shows."""
    made = []
    for mode in dict.fromkeys(row["mode"] for row in rows):
        unit, scale = ("ms", 1e3) if mode in ON_THE_DEVICE else ("us", 1e6)
        names = ("eager", *BACKENDS)
        head = ["case", *(f"{name} {unit}" for name in names), "litz over Inductor"]
        head += [f"{compiling}, Inductor s", f"{compiling}, litz s"]
        if mode in RATED:
            head += ["litz GB/s", "of a copy"]
        body = []
        for row in (row for row in rows if row["mode"] == mode):
            digits = 3 if mode in ON_THE_DEVICE else 0
            times = (f"{row[name] * scale:.{digits}f}" if name in row else "failed" for name in names)
            cells = [row["case"], *times]
            both = all(name in row for name in BACKENDS)
            cells.append(f"{row['inductor'] / row['litz']:.2f}" if both else "")
            taken = (row.get(f"{name} {compiling}") for name in BACKENDS)
            cells += ["" if each is None else f"{each:.2f}" for each in taken]
            if mode in RATED and "litz" in row:
                speed = row["bytes"] / row["litz"]
                cells += [f"{speed / 1e9:.0f}", f"{speed / rate:.0%}"]
            body.append(cells)
        done = [row for row in rows if row["mode"] == mode and all(name in row for name in BACKENDS)]
        if done:
            mean = statistics.geometric_mean([row["inductor"] / row["litz"] for row in done])
            first = statistics.geometric_mean(
                [row[f"inductor {compiling}"] / row[f"litz {compiling}"] for row in done]
            )
            body.append(["geometric mean", "", "", "", f"{mean:.3f}", "", f"{first:.2f} times as quick"])
        made.append([[f"{mode}: {head[0]}", *head[1:]], *body])
    return made


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", default="infer,train,large")
    parser.add_argument("--cases", default="", help="names, with commas between them; all of them by default")
    parser.add_argument("--mode", default=None, help="the mode of torch.compile, for both backends")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long each small case is timed")
    parser.add_argument("--out", type=Path, help="write all rows as JSON")
    parser.add_argument("--markdown", type=Path, help="write the tables as a page")
    return parser.parse_args()


def main() -> int:
    """Measure what the command line names."""
    options = parse()
    if not torch.cuda.is_available():
        print("no NVIDIA GPU here", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="litz-bench-") as folder:
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "LITZ_CACHE_DIR"):
            os.environ[name] = f"{folder}/{name}"
        warm_up(options.mode)
        chosen = set(filter(None, options.cases.split(",")))
        rows: list[Row] = []
        rate = copy_rate()
        for mode in options.modes.split(","):
            for name in ON_THE_DEVICE.get(mode, CASES):
                if (chosen and name not in chosen) or (mode == "train" and not CASES[name].trains):
                    continue
                rows.append(measure(name, mode, options.mode, options.seconds))
                print(json.dumps(rows[-1]), flush=True)
    software = f"torch {torch.__version__}, Python {platform.python_version()}"
    machine = f"{torch.cuda.get_device_name()}, {software}, a copy at {rate / 1e9:.0f} GB/s"
    if options.out is not None:
        options.out.write_text(
            json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n", encoding="utf-8"
        )
    page = [machine]
    compiling = "ready" if (options.mode or "").startswith("max-autotune") else "first"
    for head, *body in tables(rows, rate, compiling):
        shown = Table(*head, title=machine)
        for cells in body:
            shown.add_row(*cells)
        Console(width=160).print(shown)
        lines = [f"| {' | '.join(cells)} |" for cells in (head, *body)]
        page += ["", lines[0], "|---" * len(head) + "|", *lines[1:]]
    if options.markdown is not None:
        options.markdown.write_text("\n".join(page) + "\n", encoding="utf-8")
    for complaint in broken(rows):
        print(f"broken: {complaint}", file=sys.stderr)
    return 1 if broken(rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
