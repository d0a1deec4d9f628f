"""Watched processes, one for each model and mode: a crash or a hang is the verdict of the cell that it happened in."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from whole_models.execution import Mode
from whole_models.worker import Row

POLL = 0.1
START = 120.0
"""Seconds of a process, beyond a cell's, to import everything and find its device."""


@dataclass(frozen=True, slots=True)
class Job:
    """Cells of one model and mode that a process judges one after another."""

    case: str
    mode: Mode
    dtypes: tuple[str, ...]
    fuse: bool = True

    def to_text(self) -> str:
        """Return the job as one argument."""
        return ":".join((self.case, self.mode, ",".join(self.dtypes), str(int(self.fuse))))

    @staticmethod
    def from_text(text: str) -> Job:
        """Return the job that an argument stands for."""
        case, mode, dtypes, fuse = text.split(":")
        return Job(case, cast(Mode, mode), tuple(dtypes.split(",")), fuse == "1")


@dataclass(frozen=True, slots=True)
class Limits:
    """The time (of the monotonic clock) at which the run ends, and the seconds of a cell."""

    end: float
    cell: float


def carried_out(job: Job, arguments: list[str], folder: Path, limits: Limits) -> list[Row]:
    """Run a job and return its rows: those of all cells, or of those up to the one that ended the process."""
    if time.monotonic() >= limits.end:
        return [_lost(job, dtype, "left out", "the budget is spent") for dtype in job.dtypes]
    stem = folder / job.to_text().replace(":", "-").replace(",", "-")
    said, errors = stem.with_suffix(".out"), stem.with_suffix(".err")
    command = [sys.executable, "-m", "whole_models", "--worker", job.to_text(), *arguments]
    command += ["--out", str(folder / "references.lock")]
    search = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    caches = {"LITZ_CACHE_DIR": str(folder / "litz"), "TRITON_CACHE_DIR": str(folder / "triton")}
    environment = {**os.environ, **caches, "PYTHONPATH": search}
    (folder / "litz").mkdir(mode=0o700, exist_ok=True)
    with open(said, "wb") as out, open(errors, "wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)
        try:
            rows, reason = _watched(process, said, limits)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    judged = {row["dtype"] for row in rows}
    left = [dtype for dtype in job.dtypes if dtype not in judged]
    if reason == "" and left:
        last = _last_words(errors)
        if rows and "CUDA error" in rows[-1].get("reason", ""):
            return rows
        return [*rows, _lost(job, left[0], "crash", f"{_how(process.returncode)}: {last}")]
    return rows + [_lost(job, dtype, "timeout", reason) for dtype in left[:1]]


def _watched(process: subprocess.Popen[bytes], said: Path, limits: Limits) -> tuple[list[Row], str]:
    """Wait for the process; return the rows that it printed, and the reason for which it was ended, if it was."""
    begun, deadline = 0, time.monotonic() + START + limits.cell
    while True:
        ended = process.poll() is not None
        text = said.read_text(encoding="utf-8", errors="replace")
        lines = text[: text.rfind("\n") + 1].splitlines()
        rows = [json.loads(line[4:]) for line in lines if line.startswith("ROW ")]
        if ended:
            return rows, ""
        now, count = time.monotonic(), sum(line.startswith("BEGIN ") for line in lines)
        if count > begun:
            begun, deadline = count, now + limits.cell
        if now > min(deadline, limits.end):
            return rows, "the budget is spent" if now > limits.end else f"{limits.cell:.0f} s passed"
        time.sleep(POLL)


def _lost(job: Job, dtype: str, verdict: str, reason: str) -> Row:
    return {
        "case": job.case,
        "mode": job.mode,
        "dtype": dtype,
        "fuse": job.fuse,
        "verdict": verdict,
        "reason": reason,
    }


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _last_words(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return " | ".join(lines[-3:])[:600]
