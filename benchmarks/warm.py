"""Time first calls on a warm cache, less Dynamo's own time, under litz and Inductor.

Each case runs in processes of its own under each backend: one that fills a fresh cache folder, then `--repeats` that
find everything there, of which the quickest counts. A figure is what the backend takes of a first call: its import, its
own part of the compilation, the compiled call, and in training the backward. Dynamo captures before and between these,
and is not counted. `python benchmarks/warm.py --modes infer,train`; `--more FILE` adds the cases of a file that
registers them as `cases.py` does; `--caches FOLDER` keeps the caches there, so that a second run needs no cold one.
Exit code 1 where litz takes more than `--bar` of Inductor's time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import runpy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from cases import CASES
from measure import trial
from processes import Row, answer

LIMIT = 900.0  # seconds that one process may take


class Clock:
    """Seconds that a backend and what it compiled take, without those inside one another counted twice."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.inside = False

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls are counted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return function(*args, **kwargs)
            self.inside, start = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.inside = False
                self.seconds += time.perf_counter() - start

        return call


def first_call(name: str, backend: str, mode: str) -> Row:
    """Return the seconds of a case's first call in this process, and of them those of the backend."""
    made = trial(name, mode)
    torch.compile(torch.neg, backend="eager")(torch.zeros(1))  # what Dynamo imports when it first captures
    clock = Clock()

    def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        chosen = torch._dynamo.lookup_backend(backend)
        return clock.timed(chosen(gm, inputs))

    backward = torch.Tensor.backward
    torch.Tensor.backward = clock.timed(backward)  # type: ignore[method-assign]
    gc.collect()  # what importing and building the model left is no backend's
    start = time.perf_counter()
    made.step(torch.compile(made.program, backend=clock.timed(compiler)))
    return {"first": time.perf_counter() - start, "backend": clock.seconds}


def warm(name: str, backend: str, mode: str, folder: str, repeats: int, threads: int) -> Row:
    """Return the quickest first call of several processes on one cache folder, after one that fills it."""
    more = sys.argv[sys.argv.index("--more") :][:2] if "--more" in sys.argv else []
    arguments = ["--one", name, backend, mode, *more]
    filled = Path(folder, "filled")
    if not filled.exists():
        cold = answer("warm.py", arguments, folder, threads, LIMIT)
        if "failure" in cold:
            return cold
        filled.touch()
    rows = [answer("warm.py", arguments, folder, threads, LIMIT) for _ in range(repeats)]
    failed = [row for row in rows if "failure" in row]
    return failed[0] if failed else min(rows, key=lambda row: row["backend"])


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="", help="names, with commas between them; all of them by default")
    parser.add_argument("--modes", default="infer", help="infer, train or both")
    parser.add_argument("--backends", default="inductor,litz")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--bar", type=float, default=0.2, help="greatest ratio of litz's time to Inductor's")
    parser.add_argument("--more", help="file with further cases")
    parser.add_argument("--caches", help="folder of the caches, which stay there")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Time the selected cases and print a line for each."""
    options = parse()
    if options.more:
        runpy.run_path(options.more)
    if options.one:
        print(json.dumps(first_call(*options.one)))
        return 0
    ratios: dict[str, float] = {}
    complaints = 0
    for mode in options.modes.split(","):
        for name in list(filter(None, options.cases.split(","))) or list(CASES):
            if mode == "train" and not CASES[name].trains:
                continue
            rows: dict[str, Row] = {}
            for backend in options.backends.split(","):
                with tempfile.TemporaryDirectory(prefix="litz-warm-") as folder:
                    place = f"{options.caches}/{name}-{mode}-{backend}" if options.caches else folder
                    Path(place).mkdir(parents=True, exist_ok=True)
                    rows[backend] = warm(name, backend, mode, place, options.repeats, options.threads)
            line = f"{mode:5} {name:24}"
            for backend, row in rows.items():
                line += f" {backend} " + row.get("failure", f"{row.get('backend', 0.0):.3f} s")
            if all("backend" in rows.get(each, ()) for each in ("litz", "inductor")):
                ratio = ratios[f"{name} ({mode})"] = rows["litz"]["backend"] / rows["inductor"]["backend"]
                line += f"  ratio {ratio:.3f}"
            complaints += any("failure" in row for row in rows.values())
            print(line, flush=True)
    if ratios:
        worst = max(ratios, key=ratios.__getitem__)
        mean = statistics.geometric_mean(ratios.values())
        print(f"{len(ratios)} cases: geometric mean {mean:.3f}, worst {ratios[worst]:.3f} ({worst})")
        complaints += ratios[worst] > options.bar
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main())
