"""Judge litz by programs of other libraries, as their documentation tells users to compile them.

Each program is run in eager, in double precision, and compiled by `aot_eager` and litz (and Inductor, if asked for),
on the CPU in one thread. Rows are kept as they come, a line of JSON for each case, and the same command goes on where
it was stopped. Exit code 1 when litz is at fault in a case.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
from fnmatch import fnmatchcase
from pathlib import Path

from watched_processes import Pool

from ecosystem import report
from ecosystem.catalogue import LIBRARIES, Case
from ecosystem.row import Row, read
from ecosystem.worker import main as work_on


def parser() -> argparse.ArgumentParser:
    """Read the command line."""
    made = argparse.ArgumentParser(prog="ecosystem", description=__doc__)
    made.add_argument("--only", default="*", help="libraries or library/program, shell patterns, with commas")
    made.add_argument("--inductor", action="store_true", help="run Inductor too")
    made.add_argument("--times", action="store_true", help="time calls, for which the machine has to be idle")
    made.add_argument("--workers", type=int, default=1, help="processes at a time, of one thread each")
    made.add_argument("--timeout", type=float, default=600, help="seconds that a case may take")
    made.add_argument("--results", type=Path, default=Path("build/ecosystem"), help="the folder of results")
    made.add_argument(
        "--again", choices=("failed", "eager", "all"), help="run such rows again that are there"
    )
    made.add_argument("--report", type=Path, help="write the tables of results, and run nothing")
    return made


def cases(only: str) -> list[Case]:
    """Return the cases that match a pattern, alternating between the libraries."""
    patterns = only.split(",")
    by_library = [
        [
            Case(library.name, name)
            for name in library.programs()
            if any(
                fnmatchcase(text, p) for p in patterns for text in (library.name, f"{library.name}/{name}")
            )
        ]
        for library in LIBRARIES
    ]
    return [case for row in itertools.zip_longest(*by_library) for case in row if case is not None]


def _again(which: str | None, row: Row) -> bool:
    """Report that a case which has a row already is run once more."""
    chosen = {"failed": not row.passed(), "eager": bool(row.eager_error), "all": True}
    return which is not None and chosen[which]


def main(arguments: list[str] | None = None) -> int:
    """Run, and return the exit code."""
    options = parser().parse_args(arguments)
    path = options.results / "results.jsonl"
    rows = read(path)
    if options.report is not None:
        report.write(options.report, rows)
        return 0
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    options.results.mkdir(parents=True, exist_ok=True)
    work = [case for case in cases(options.only) if case not in rows or _again(options.again, rows[case])]
    target = functools.partial(work_on, peer=options.inductor, timed=options.times)
    with open(path, "a", encoding="utf-8") as file:
        pool = Pool(options.workers, options.results, options.timeout, "ecosystem.warm", target, Row)
        for row in pool.rows(work):
            rows[row.case] = row
            file.write(row.to_line() + "\n")
            file.flush()
            print(report.line(row), flush=True)
    print(report.counts(rows.values()), report.times(rows.values()), sep="\n")
    return 0 if all(row.passed() for row in rows.values()) else 1
