"""Judge litz by whole models, before any speed is measured.

Ten models, inference and a training step, f32 and bf16 autocast: outputs, the loss, every gradient and every buffer,
on two calls. Each tensor's distance from a more exact eager run (f64 for f32, f32 for bf16, TF32 off) may be so many
times that of eager at the same precision: 2 for f32, 1.5 for bf16. A training step in f32 that is further off is judged
again with ReLUs that let through what they do in f64, and its line says both. A process a model and mode, so that a
crash costs one cell. Exit code 1 when a cell is not right.

From a checkout on a machine where nothing can be installed, with `timm`, `torchvision` and `transformers` there:

    export PYTHONPATH=$(python3 tools/tree_metadata.py /tmp/litz-metadata):tests
    python3 -m whole_models --device cuda --workers 4 --budget 540 --fuse-off --out rows.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from whole_models.architectures import CASES
from whole_models.execution import Mode
from whole_models.processes import Job, Limits, carried_out
from whole_models.worker import Row, work

MODES = ("infer", "train")
DTYPES = ("f32", "bf16")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog="whole_models", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    made.add_argument("--small", action="store_true", help="tiny models, for a CPU")
    made.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    made.add_argument("--modes", default=",".join(MODES), help=f"of {', '.join(MODES)}")
    made.add_argument("--dtypes", default=",".join(DTYPES), help=f"of {', '.join(DTYPES)}")
    made.add_argument("--workers", type=int, default=min(4, max(1, (os.cpu_count() or 1) // 4)))
    made.add_argument("--budget", type=float, default=3600.0, help="seconds for everything")
    made.add_argument("--timeout", type=float, default=300.0, help="seconds for a cell")
    made.add_argument("--fuse-off", action="store_true", help="judge what is not right again with fuse=False")
    made.add_argument("--out", type=Path, help="a file that gets a line of JSON for each cell as it ends")
    made.add_argument("--worker", help=argparse.SUPPRESS)
    return made


@dataclass(slots=True)
class Judgement:
    """Remaining jobs and the rows of finished ones; its lanes are threads, each with a process."""

    waiting: deque[Job]
    limits: Limits
    arguments: list[str]
    folder: Path
    retry: bool
    out: Path | None
    rows: list[Row] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def lane(self) -> None:
        """Carry out jobs until there is none; cells that a crash left undone come back as another job."""
        while True:
            with self.lock:
                if not self.waiting:
                    return
                job = self.waiting.popleft()
            rows = carried_out(job, self.arguments, self.folder, self.limits)
            done = {row["dtype"] for row in rows}
            left = tuple(dtype for dtype in job.dtypes if dtype not in done)
            with self.lock:
                if left:
                    self.waiting.appendleft(Job(job.case, job.mode, left, job.fuse))
                for row in rows:
                    self._take(row)

    def _take(self, row: Row) -> None:
        self.rows.append(row)
        print(described(row), flush=True)
        self.write(row)
        if self.retry and row["fuse"] and row["verdict"] in ("wrong", "error", "crash"):
            self.waiting.append(Job(row["case"], row["mode"], (row["dtype"],), fuse=False))

    def write(self, row: Row) -> None:
        """Append a line of JSON to the file of rows, if there is one."""
        if self.out is not None:
            with open(self.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def described(row: Row) -> str:
    """Return a row as a line, and one more for each of the first wrong tensors in forward order."""
    name = f"{row['case']} {row['mode']} {row['dtype']}" + ("" if row["fuse"] else " with fuse=False")
    line = f"{name} {row['verdict']}"
    if "worst" in row:
        line += f" worst={row['worst']} {row['ratio']:.2f} eager_err={row['eager_err']:.1e}"
        line += f" litz_err={row['litz_err']:.1e} first={row['first']:.1f}s"
    if row.get("draws", 1) > 1:
        line += f" draws={row['draws']}"
    if "free_signs" in row:
        free = row["free_signs"]
        line += " with the signs of ReLUs held"
        line += f" (free: {free['wrong']} wrong, worst={free['worst']} {free['ratio']:.2f})"
    if row.get("wrong"):
        line += f" wrong={row['wrong']} of {row['tensors']}, the first in forward order:"
    if "reason" in row:
        line += f" {row['reason']}"
    return "\n    ".join([line, *row.get("first_wrong", [])])


def jobs(cases: Iterable[str], modes: Iterable[Mode], dtypes: Sequence[str]) -> list[Job]:
    """Return the work: training steps, which take longer, first."""
    ordered = sorted(modes, reverse=True)
    return [Job(case, mode, tuple(dtypes)) for mode in ordered for case in cases]


def machine(device: str) -> Row:
    """Return the machine, device and versions on which the rows were measured."""
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {"machine": name, "torch": torch.__version__, "python": platform.python_version()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge, and return the exit code."""
    options = parser().parse_args(arguments)
    if options.worker is not None:
        job = Job.from_text(options.worker)
        lock = Path(options.out)
        return work(job.case, job.mode, job.dtypes, options.device, options.small, job.fuse, lock)
    chosen = {"cases": CASES, "modes": MODES, "dtypes": DTYPES}
    lists = {name: getattr(options, name).split(",") for name in chosen}
    for name, known in chosen.items():
        if foreign := set(lists[name]) - set(known):
            raise SystemExit(f"--{name}: {', '.join(sorted(foreign))}: none of {', '.join(known)}")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="litz-models-") as folder:
        judgement = Judgement(
            deque(jobs(**lists)),
            Limits(start + options.budget, options.timeout),
            ["--device", options.device, *(["--small"] if options.small else [])],
            Path(folder),
            options.fuse_off,
            options.out,
        )
        about = machine(options.device)
        judgement.write(about)
        print(*(f"{key}: {value}" for key, value in about.items()), sep=", ", flush=True)
        lanes = [threading.Thread(target=judgement.lane) for _ in range(max(1, options.workers))]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
    rows = [row for row in judgement.rows if row["fuse"]]
    right = sum(row["verdict"] == "ok" for row in rows)
    print(f"{right} of {len(rows)} right, {time.monotonic() - start:.0f} s", flush=True)
    return 0 if right == len(rows) else 1
