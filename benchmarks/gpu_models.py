"""Compare eager, Inductor and litz on whole models in bf16 autocast on the NVIDIA GPU at hand.

    export PYTHONPATH=$(python3 tools/tree_metadata.py /tmp/litz-metadata)
    python benchmarks/gpu_models.py --modes infer,train --compile-modes default,reduce-overhead --out rows.jsonl

A process a model and mode, so that a crash costs one row. Several compile at the same time; then they are timed one by
one, while nothing else runs. A row has, for eager and each backend and mode of `torch.compile`: milliseconds of the
device (the sum of a call's kernels), of a whole call on the host's clock (median), the error against a run in f32
without TF32, the peak of a call beyond what was allocated before in MiB, and the seconds of the first call, on fresh
cache folders and beside the other compilations. A step of training has no optimizer. `--kernels` adds the kernels that
take longest. Exit code 1 when a result of litz is further from f32 than one and a half times eager's distance.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import torch
from gpu_architectures import MODELS
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

Row = dict[str, Any]
Program = Callable[..., Tensor]
BACKENDS = ("inductor", "litz")
MIB = 1 << 20
SLACK = 1.5
"""Times eager's distance from f32 that a result may be off."""

LISTED = 40
"""Kernels that a row lists for each backend."""


class Case:
    """A model on the GPU and a call of it: an inference, or a forward and its backward."""

    def __init__(self, name: str, mode: str) -> None:
        torch.manual_seed(0)
        self.train = mode == "train"
        with torch.device("cuda"):
            self.model, self.inputs = MODELS[name](self.train)
        self.model = self.model.cuda().train(
            self.train
        )  # torchvision and transformers make some tensors on the CPU
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            for option in ("dropout", "attention_dropout", "activation_dropout", "p"):
                if isinstance(getattr(module, option, None), float):
                    setattr(module, option, 0.0)

    def call(self, program: Program, narrow: bool = True) -> list[Tensor]:
        """Run a program that stands for the model; return its result, or the gradients of the parameters."""
        with torch.autocast("cuda", torch.bfloat16, enabled=narrow):
            if not self.train:
                with torch.no_grad():
                    return [program(*self.inputs)]
            self.model.zero_grad(set_to_none=True)
            result = program(*self.inputs)
            loss = result if result.dim() == 0 else result.float().square().mean()
            loss.backward()
        return [each.grad for each in self.model.parameters() if each.grad is not None]

    def values(self, program: Program, narrow: bool = True) -> list[Tensor]:
        """Run a program and copy what it returned, in f32 on the host."""
        return [each.detach().float().cpu() for each in self.call(program, narrow)]

    def exact(self) -> list[Tensor]:
        """Run the model in f32, without TF32."""
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        found = self.values(self.model, narrow=False)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        return found


def distance(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """Return the norm of all differences over the norm of all wanted values."""
    pairs = list(zip(found, wanted, strict=True))
    total = sum(float(b.double().square().sum()) for _, b in pairs)
    return float((sum(float((a - b).double().square().sum()) for a, b in pairs) / (total + 1e-30)) ** 0.5)


def peak(call: Callable[[], Any]) -> float:
    """Return the MiB that a call allocates at most, beyond what was allocated before it."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = call()
    torch.cuda.synchronize()
    del kept
    return float(torch.cuda.max_memory_allocated() - before) / MIB


def on_the_host(call: Callable[[], Any], seconds: float) -> float:
    """Return the median milliseconds of a call and the synchronisation after it."""
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - start)
    return 1e3 * statistics.median(samples)


def on_the_device(call: Callable[[], Any], calls: int = 3) -> tuple[float, list[tuple[str, float, int]]]:
    """Return the milliseconds that kernels of a call take, and the kernels: name, microseconds and launches a call."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    found: dict[str, tuple[float, int]] = {}
    for event in profile.events() or ():
        if event.device_type == torch._C._autograd.DeviceType.CUDA and not event.is_user_annotation:
            spent, launches = found.get(event.name, (0.0, 0))
            found[event.name] = spent + event.time_range.elapsed_us(), launches + 1
    kernels = sorted(
        ((name, spent / calls, launches // calls) for name, (spent, launches) in found.items()),
        key=lambda each: -each[1],
    )
    return sum(spent for _, spent, _ in kernels) / 1e3, kernels


@dataclass
class Contender:
    """A compiled model, or eager's, ready to be timed."""

    label: str
    program: Program
    row: Row
    host: list[float] = field(default_factory=list)


@contextmanager
def alone(path: str) -> Iterator[None]:
    """Keep other processes of the driver from what they do under the same lock."""
    with open(path, "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prepared(case: Case, options: argparse.Namespace, row: Row) -> list[Contender]:
    """Compile the model by each backend in each mode, check what it returns, and measure its memory."""
    model: Program = case.model
    with alone(options.lock):  # runs in f32 and by eager take most memory
        wanted = case.exact()
        row["eager"] = {"error": distance(case.values(model), wanted)}
        row["eager"]["peak"] = peak(partial(case.call, model))
        case.model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
    contenders = [Contender("eager", model, row["eager"])]
    for compile_mode in options.compile_modes.split(","):
        for backend in BACKENDS:
            label = backend if compile_mode == "default" else f"{backend} {compile_mode}"
            torch.cuda.empty_cache()
            found: Row = {}
            row[label] = found
            try:
                asked: Row = {} if compile_mode == "default" else {"mode": compile_mode}
                program = torch.compile(case.model, backend=backend, **asked)
                torch.cuda.synchronize()
                start = time.perf_counter()
                values = case.call(program)
                torch.cuda.synchronize()
                found["first"] = time.perf_counter() - start
                found["error"] = distance([each.detach().float().cpu() for each in values], wanted)
                del values
                end = time.perf_counter() + options.settle
                for _ in range(3):
                    case.call(program)
                while time.perf_counter() < end:  # tuning between calls ends here
                    case.call(program)
                found["again"] = distance(case.values(program), wanted)
                found["peak"] = peak(partial(case.call, program))
                contenders.append(Contender(label, program, found))
            except Exception as error:  # whatever a backend raises is a row of the table
                found["failure"] = f"{type(error).__name__}: {error}"[:300]
    return contenders


def one(name: str, mode: str, options: argparse.Namespace) -> None:
    """Measure a model; wait between compilation and timing until the driver says so."""
    row: Row = {"model": name, "mode": mode}
    torch._dynamo.config.recompile_limit = 64  # each backend and mode is an entry of the same code
    # Strides of one backend's results would become symbols in the graphs that the next one compiles.
    torch._dynamo.config.automatic_dynamic_shapes = False
    case = Case(name, mode)
    contenders = prepared(case, options, row)
    torch.cuda.empty_cache()
    print("READY", flush=True)
    sys.stdin.readline()
    with alone(options.lock):
        for each in contenders:
            for _ in range(2):
                case.call(each.program)
            each.row["device"], kernels = on_the_device(partial(case.call, each.program))
            if options.kernels:
                each.row["kernels"] = kernels[:LISTED]
        for _ in range(options.rounds):  # one after another, so that a slow spell of the host meets all
            for each in contenders:
                each.host.append(on_the_host(partial(case.call, each.program), options.seconds))
    for each in contenders:
        each.row["host"] = min(each.host)
    print("ROW " + json.dumps(row), flush=True)


@dataclass
class Worker:
    """A process that measures a model."""

    name: str
    mode: str
    process: subprocess.Popen[str]
    errors: TextIO

    def wait(self) -> None:
        """Wait until the process has compiled its model, or has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "READY\n":
                return

    def row(self, left: float) -> Row:
        """Wait for the row of a process that has been told to go on, or the reason why there is none."""
        try:
            out, _ = self.process.communicate("\n", timeout=max(1.0, left))
        except subprocess.TimeoutExpired:
            self.process.kill()
            return {"model": self.name, "mode": self.mode, "crash": "out of time"}
        rows = [line[4:] for line in out.splitlines() if line.startswith("ROW ")]
        if rows:
            found: Row = json.loads(rows[-1])
            return found
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines() or ["no message"]
        return {"model": self.name, "mode": self.mode, "crash": " | ".join(lines[-3:])[:600]}


def started(name: str, mode: str, arguments: Sequence[str], folder: Path) -> Worker:
    """Start the process of a model on cache folders of its own."""
    own = folder / f"{name}-{mode}"
    own.mkdir()
    caches = {
        key: str(own / key) for key in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "LITZ_CACHE_DIR")
    }
    errors = (own / "errors").open("w+", encoding="utf-8")
    command = [sys.executable, "-W", "ignore", __file__, "--one", name, "--modes", mode, *arguments]
    process = subprocess.Popen(
        command,
        env={**os.environ, **caches},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    return Worker(name, mode, process, errors)


def described(row: Row) -> str:
    """Return a row as a line."""
    parts = [f"{row['mode']:5} {row['model']:21}", row.get("crash", "")]
    for label, found in row.items():
        if isinstance(found, dict):
            shown = " ".join(f"{key} {value:.3g}" for key, value in found.items() if isinstance(value, float))
            parts.append(f"| {label}: {found.get('failure', '')} {shown}")
    return " ".join(parts)


def wrong(row: Row) -> list[str]:
    """Return what of a row's litz is missing or further from f32 than it may be."""
    bound = SLACK * row.get("eager", {}).get("error", 0.0) + 1e-6
    return [
        label
        for label, found in row.items()
        if label.startswith("litz")
        and not (found.get("error", math.inf) <= bound and found.get("again", math.inf) <= bound)
    ]


def table(rows: Sequence[Row], mode: str, compile_mode: str) -> Table:
    """Return the table of a mode, with the geometric means in its title."""
    ending = "" if compile_mode == "default" else f" {compile_mode}"
    peer, own = "inductor" + ending, "litz" + ending
    shown = [
        row
        for row in rows
        if row["mode"] == mode and all("host" in row.get(each, {}) for each in (peer, own))
    ]
    ratios = {key: [row[peer][key] / row[own][key] for row in shown] for key in ("device", "host", "first")}
    means = ", ".join(f"{key} {statistics.geometric_mean(each):.3f}" for key, each in ratios.items() if each)
    made = Table(title=f"{mode}, {compile_mode}: times as fast as Inductor: {means}")
    for heading in (
        "model",
        "eager",
        "Inductor",
        "litz",
        "device",
        "host",
        "first",
        "peaks: eager, Inductor, litz",
    ):
        made.add_column(heading)
    for row in shown:
        each = [row["eager"], row[peer], row[own]]
        made.add_row(
            row["model"],
            *(f"{found['device']:.2f}" for found in each),
            *(f"{row[peer][key] / row[own][key]:.2f}" for key in ("device", "host", "first")),
            ", ".join(f"{found['peak']:,.0f}" for found in each),
        )
    return made


def parse() -> argparse.Namespace:
    """Return the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--modes", default="infer,train")
    made.add_argument("--models", default=",".join(MODELS))
    made.add_argument("--compile-modes", default="default", help="default, reduce-overhead, max-autotune")
    made.add_argument("--seconds", type=float, default=0.3, help="how long a round of calls is")
    made.add_argument("--rounds", type=int, default=2)
    made.add_argument(
        "--settle", type=float, default=0.0, help="seconds of calls before timing, for modes that tune"
    )
    made.add_argument("--workers", type=int, default=8, help="models that compile at the same time")
    made.add_argument("--budget", type=float, default=3600.0, help="seconds for everything")
    made.add_argument("--kernels", action="store_true")
    made.add_argument("--out", type=Path, help="a file that gets a line of JSON for each row")
    made.add_argument("--one", default="", help=argparse.SUPPRESS)
    made.add_argument("--lock", default="", help=argparse.SUPPRESS)
    return made.parse_args()


def main() -> int:
    """Measure all models, print their tables, and return the exit code."""
    options = parse()
    if options.one:
        one(options.one, options.modes, options)
        return 0
    end = time.monotonic() + options.budget
    jobs = [(name, mode) for mode in options.modes.split(",") for name in options.models.split(",")]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="litz-gpu-models-") as folder:
        arguments = ["--compile-modes", options.compile_modes, "--lock", f"{folder}/lock"]
        arguments += [
            f"--seconds={options.seconds}",
            f"--rounds={options.rounds}",
            f"--settle={options.settle}",
        ]
        arguments += ["--kernels"] if options.kernels else []
        for first in range(0, len(jobs), options.workers):
            if time.monotonic() > end:
                break
            workers = [
                started(*job, arguments, Path(folder)) for job in jobs[first : first + options.workers]
            ]
            for worker in workers:
                worker.wait()
            for worker in workers:
                row = worker.row(end - time.monotonic())
                rows.append(row)
                print(described(row), flush=True)
                if options.out is not None:
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
    console = Console(width=150)
    for mode in options.modes.split(","):
        for compile_mode in options.compile_modes.split(","):
            console.print(table(rows, mode, compile_mode))
    failed = [f"{row['model']} {row['mode']}" for row in rows if "crash" in row or wrong(row)]
    print("not right:", ", ".join(failed) or "none")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
