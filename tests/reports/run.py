"""Runs the reports under eager and backends of torch.compile, and prints a table: `python -m reports --help`.

Each run of a report is a process of its own, so that one that dies costs one cell. Verdicts are `as eager`; `differs`,
with the first difference; `dies`, with the signal. Cells are kept as they come, a line of JSON for each, and the same
command goes on where it was stopped. Exit code 1 where litz differs without a reason in the table.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from multiprocessing.connection import Connection
from pathlib import Path

import torch

import reports.topics  # noqa: F401  the table is filled by importing it
from reports.outcome import difference, run
from reports.page import write_page
from reports.table import REPORTS, Report

BACKENDS = ("aot_eager", "inductor", "litz")
LIMIT = 300.0
"""Seconds that one run may take: Inductor compiles C++ with all of torch's headers."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Verdict of one report under one backend; ``seconds`` are those of its process's CPU time."""

    report: str
    backend: str
    verdict: str
    text: str = ""
    seconds: float = 0.0


def compared(name: str, backend: str, sender: Connection) -> None:
    """Compare a report under a backend with eager, and send the difference."""
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    report = REPORTS[name]
    text = difference(run(report, backend), run(report, "eager"))
    sender.send((text, round(time.process_time(), 2)))


def judged(report: Report, backend: str) -> Cell:
    """Run one cell in a process of its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=compared, args=(report.name, backend, sender))
    process.start()
    sender.close()
    try:
        received = receiver.recv() if receiver.poll(LIMIT) else None
    except EOFError:
        received = None
    process.join(1)
    if process.is_alive():
        process.kill()
        process.join()
    if received is None:
        return Cell(report.name, backend, "dies", f"exit code {process.exitcode}")
    text, seconds = received
    return Cell(report.name, backend, "differs" if text else "as eager", text, seconds)


def warm_up(backends: Sequence[str]) -> None:
    """Import what each backend imports at its first compilation, which the forked processes then share."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of its own, which would be shared too
    torch.set_num_threads(1)
    for backend in backends:
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2, requires_grad=True)).sum().backward()


def cells(
    chosen: Sequence[Report], backends: Sequence[str], kept: Mapping[tuple[str, str], Cell]
) -> Iterator[Cell]:
    """Yield the cells of the table, row by row; those that are kept are not run."""
    for report in chosen:
        for backend in backends:
            yield kept.get((report.name, backend)) or judged(report, backend)


def earlier(path: Path) -> dict[tuple[str, str], Cell]:
    """Return the cells of an earlier run, the last one where there are several."""
    if not path.exists():
        return {}
    rows = [Cell(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    return {(row.report, row.backend): row for row in rows}


def options() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="reports", description=__doc__)
    parser.add_argument("--only", default="*", help="names or shell patterns, separated by commas")
    parser.add_argument("--topic", default="*", help="a topic, or a shell pattern")
    parser.add_argument("--backends", default=",".join(BACKENDS), help="separated by commas")
    parser.add_argument("--out", type=Path, default=Path("build/reports.jsonl"), help="the file of cells")
    parser.add_argument("--again", action="store_true", help="run the cells that are in the file too")
    parser.add_argument("--page", type=Path, help="write the page of results, docs/reports.md")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run, print the table, and return the exit code."""
    chosen = options().parse_args(arguments)
    backends = chosen.backends.split(",")
    patterns = chosen.only.split(",")
    rows = [
        each
        for each in REPORTS.values()
        if fnmatchcase(each.topic, chosen.topic) and any(fnmatchcase(each.name, p) for p in patterns)
    ]
    kept = {} if chosen.again else earlier(chosen.out)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    if any((each.name, backend) not in kept for each in rows for backend in backends):
        warm_up(backends)
    found: dict[tuple[str, str], str] = {}
    wrong = 0
    with open(chosen.out, "a", encoding="utf-8") as out:
        for cell in cells(rows, backends, kept):
            if (cell.report, cell.backend) not in kept:
                out.write(json.dumps(asdict(cell)) + "\n")
                out.flush()
            found[cell.report, cell.backend] = cell.verdict
            if cell.backend == "litz":
                wrong += (cell.verdict != "as eager") != bool(REPORTS[cell.report].differs)
            text = f"  {cell.text.splitlines()[0][:200]}" if cell.text else ""
            print(
                f"{cell.report:48} {cell.backend:10} {cell.verdict:9} {cell.seconds:6.2f} s{text}", flush=True
            )
    for backend in backends:
        right = sum(found[each.name, backend] == "as eager" for each in rows)
        print(f"{backend}: {right} of {len(rows)} as eager")
    if chosen.page is not None:
        write_page(chosen.page, rows, backends, found)
    return 1 if wrong else 0
