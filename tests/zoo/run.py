"""Judge litz by tiny models, of random weights, of the architectures that transformers and timm offer.

Each is run without gradients and through one step of training, and compared with eager: results, every
gradient, every buffer. Rows are kept as they come, a line of JSON for each case, and the same command goes on where
it was stopped. Exit code 1 when a case fails.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
from fnmatch import fnmatchcase
from pathlib import Path

from watched_processes import Pool

from zoo import report
from zoo.cases import LIBRARIES, Case
from zoo.row import Row, read
from zoo.worker import INTERPRETED, names
from zoo.worker import main as work_on

VARIABLES = {
    "cpu": {"CUDA_VISIBLE_DEVICES": ""},
    "cuda": {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"},  # GPUs are counted without CUDA, so that forks may use it
    INTERPRETED: {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"},
}
"""Environment variables of the processes of each device."""


def parser() -> argparse.ArgumentParser:
    """Read the command line."""
    made = argparse.ArgumentParser(prog="zoo", description=__doc__)
    made.add_argument("--family", choices=LIBRARIES, help="the architectures of this library alone")
    made.add_argument("--only", default="*", help="names or shell patterns, separated by commas")
    made.add_argument(
        "--device",
        choices=VARIABLES,
        default="cpu",
        help="cuda: every GPU that there is; interpreted: kernels for sm_90, in Triton's interpreter",
    )
    made.add_argument("--shard", default="1/1", help="K/N: the Kth of N parts of each library")
    made.add_argument("--workers", type=int, default=1, help="processes at a time, of one thread each")
    made.add_argument("--timeout", type=float, default=600, help="seconds that a case may take")
    made.add_argument(
        "--results", type=Path, help="the folder of results (build/zoo, on GPUs build/zoo-cuda)"
    )
    made.add_argument(
        "--again", choices=("failed", "eager", "all"), help="run such rows again that are there"
    )
    made.add_argument("--report", type=Path, help="write the page of results, and run nothing")
    return made


def cases(options: argparse.Namespace) -> list[Case]:
    """Return the cases that the options ask for, alternating between the libraries."""
    number, of = map(int, options.shard.split("/"))
    patterns = options.only.split(",")
    found = []
    for library in LIBRARIES:
        if options.family in (None, library):
            listed = [name for name in names(library) if any(fnmatchcase(name, p) for p in patterns)]
            found.append([Case(library, name) for name in listed[number - 1 :: of]])
    return [case for row in itertools.zip_longest(*found) for case in row if case is not None]


def _again(which: str | None, row: Row) -> bool:
    """Report that a case which has a row already is run once more."""
    found = {"failed": not row.passed(), "eager": bool(row.eager_error), "all": True}
    return which is not None and found[which]


def main(arguments: list[str] | None = None) -> int:
    """Run, and return the exit code."""
    options = parser().parse_args(arguments)
    of = "" if options.device == "cpu" else f"-{options.device}"
    folder = options.results or Path(f"build/zoo{of}")
    path = folder / "results.jsonl"
    known = read(path)
    if options.report is not None:
        report.write(options.report, known.values(), "# The zoo")
        return 0
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **VARIABLES[options.device]}
    folder.mkdir(parents=True, exist_ok=True)
    work = [case for case in cases(options) if case not in known or _again(options.again, known[case])]
    with open(path, "a", encoding="utf-8") as file:
        target = functools.partial(work_on, device=options.device)
        pool = Pool(options.workers, folder, options.timeout, "zoo.warm", target, Row)
        for row in pool.rows(work):
            known[row.case] = row
            file.write(row.to_line() + "\n")
            file.flush()
            print(report.line(row), flush=True)
    print(report.counts(known.values()))
    return 0 if all(row.passed() for row in known.values()) else 1
