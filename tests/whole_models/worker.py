"""A process that judges one model in one mode, at each precision that is asked for.

It prints `BEGIN dtype` before each cell and `ROW {…}` after it; all else that is printed is a log.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from filelock import FileLock
from fixed_relu_signs import fixed_relu_signs, observed_relu_signs
from torch import Tensor

import litz
from whole_models.architectures import sample_of
from whole_models.execution import Mode, Runner
from whole_models.judge import PRECISIONS, Finding, Yardstick, judged, measured, widened, worst_of

Row = dict[str, Any]
MORE_DRAWS = 3
"""Further runs of eager, from weights moved by a rounding, that may widen a yardstick which a tensor exceeds."""

SHOWN = 6
CALLS = 2


def work(
    case: str, mode: Mode, dtypes: Sequence[str], device: str, small: bool, fuse: bool, lock: Path
) -> int:
    """Judge a model at each precision; an error on the device ends the process, since nothing runs after it."""
    warnings.simplefilter("ignore")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    runner: Runner | None = None
    for dtype in dtypes:
        print("BEGIN", dtype, flush=True)
        row: Row = {"case": case, "mode": mode, "dtype": dtype, "fuse": fuse}
        try:
            if runner is None:
                runner = Runner(sample_of(case, small), mode, device)
            row |= patiently(partial(cell, runner, dtype, fuse, FileLock(lock)), device)
        except ImportError as error:
            row |= {"verdict": "not built", "reason": str(error)[:300]}
        except Exception as error:
            row |= {"verdict": "error", "reason": f"{type(error).__name__}: {error}"[:1500]}
        print("ROW", json.dumps(row), flush=True)
        if "CUDA error" in row.get("reason", ""):
            os._exit(3)
        _free(device)
    return 0


def patiently(judge: Callable[[], Row], device: str, pause: float = 20.0) -> Row:
    """Return a cell's row; where other processes have the memory of the device, wait for it, twice at the most."""
    for _ in range(2):
        try:
            return judge()
        except torch.OutOfMemoryError:
            # Its traceback holds the tensors of the failed run, so it is left before anything is freed.
            pass
        _free(device)
        time.sleep(pause)
    return judge()


def cell(runner: Runner, dtype: str, fuse: bool, alone: AbstractContextManager[Any]) -> Row:
    """Judge litz at one precision; `alone` is held while the large exact runs are on the device."""
    narrow = dtype == "bf16"
    start = time.perf_counter()
    with alone:
        yardsticks = yardsticks_of(runner, narrow)
        _free(runner.device)
    row: Row = {"eager_seconds": round(time.perf_counter() - start, 2)}
    runs, seconds = compiled_runs(runner, narrow, fuse)
    row |= {"first": seconds[0], "second": seconds[1], "draws": 1}
    findings = findings_of(runs, yardsticks, dtype)
    if any(finding.wrong for finding in findings):
        for seed in range(MORE_DRAWS):
            with runner.disturbed(seed):
                yardsticks = widened(yardsticks, runner.run(runner.program, narrow))
        row["draws"] += MORE_DRAWS
        findings = findings_of(runs, yardsticks, dtype)
    row |= verdict_of(findings)
    if row["wrong"] and runner.mode == "train" and not narrow:
        with alone:
            row |= with_fixed_signs(runner, row, fuse)
    return row


def with_fixed_signs(runner: Runner, row: Row, fuse: bool) -> Row:
    """Judge again with the ReLU masks of the f64 run; empty where the model has no ReLU."""
    twin = runner.in_double()
    with observed_relu_signs(twin.sample.model) as signs:
        exact = twin.run(twin.program, narrow=False)
    del twin
    if not signs:
        return {}
    with fixed_relu_signs(runner.sample.model, signs):
        yardsticks = measured(exact, runner.run(runner.program, narrow=False))
        runs, _ = compiled_runs(runner, False, fuse)
        for seed in range(MORE_DRAWS):
            with runner.disturbed(seed):
                yardsticks = widened(yardsticks, runner.run(runner.program, narrow=False))
    free = {"worst": row["worst"], "ratio": row["ratio"], "wrong": row["wrong"]}
    return verdict_of(findings_of(runs, yardsticks, "f32")) | {"free_signs": free}


def compiled_runs(runner: Runner, narrow: bool, fuse: bool) -> tuple[list[dict[str, Tensor]], list[float]]:
    """Return the tensors and the seconds of several calls of the compiled program."""
    torch._dynamo.reset()
    compiled = torch.compile(runner.program, backend="litz")
    runs, seconds = [], []
    with litz.config.patch(fallback="error", fuse=fuse):
        for _ in range(CALLS):
            start = time.perf_counter()
            runs.append(runner.run(compiled, narrow))
            _synchronise(runner.device)
            seconds.append(round(time.perf_counter() - start, 3))
    return runs, seconds


def yardsticks_of(runner: Runner, narrow: bool) -> dict[str, Yardstick]:
    """Return yardsticks: eager's distance from a run of higher precision: f32 for bf16, f64 for f32."""
    if narrow:
        exact = runner.run(runner.program, narrow=False)
    else:
        twin = runner.in_double()
        exact = twin.run(twin.program, narrow=False)
    return measured(exact, runner.run(runner.program, narrow))


def findings_of(
    runs: Sequence[dict[str, Tensor]], yardsticks: dict[str, Yardstick], dtype: str
) -> list[Finding]:
    """Return the worse finding of several runs for each tensor, in forward order."""
    each = (judged(run, yardsticks, PRECISIONS[dtype]) for run in runs)
    return [worst_of(same) for same in zip(*each, strict=True)]


def verdict_of(findings: Sequence[Finding]) -> Row:
    """Return the verdict of a row: the worst tensor, the number of wrong ones, and the first few of these."""
    worst = worst_of(findings)
    wrong = [finding for finding in findings if finding.wrong]
    return {
        "verdict": "wrong" if wrong else "ok",
        "tensors": len(findings),
        "wrong": len(wrong),
        "worst": worst.name,
        "ratio": worst.ratio,
        "limit": worst.limit,
        "eager_err": worst.eager_error,
        "litz_err": worst.error,
        "first_wrong": [finding.describe() for finding in wrong[:SHOWN]],
    }


def _free(device: str) -> None:
    gc.collect()
    if device == "cuda":
        with contextlib.suppress(RuntimeError):
            torch.cuda.empty_cache()


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
