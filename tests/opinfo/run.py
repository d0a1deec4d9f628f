"""Judge litz by PyTorch's operator database.

Every entry for every dtype that it supports on the CPU goes through `torch.compile(fullgraph=True)` and is compared
with eager: values, dtypes, shapes, strides, aliasing, side effects. Results are kept as they come, a line of JSON for
each entry and dtype, so `--resume` goes on where a run stopped. Exit code 1 when a sample fails.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from opinfo import report
from opinfo.entries import DTYPES, Unit, units
from opinfo.outcome import GOOD, UnitResult
from opinfo.pool import Pool
from opinfo.samples import MODES
from opinfo.worker import Task

FULL: dict[str, int | None] = {
    "forward": 8,
    "inplace": 2,
    "gradient": 4,
    "dynamic": 4,
    "errors": None,
    "empty": 12,
    "empty_dynamic": 4,
}
"""Largest number of samples of each mode; the plain mode takes all there are in f32."""


def parser() -> argparse.ArgumentParser:
    """Read the command line."""
    made = argparse.ArgumentParser(prog="opinfo", description=__doc__)
    made.add_argument("--entries", default="*", help="names or shell patterns, separated by commas")
    made.add_argument("--dtypes", default=",".join(DTYPES), help=f"of {', '.join(DTYPES)}")
    made.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    made.add_argument("--modes", default=",".join(MODES), help=f"of {', '.join(MODES)}")
    made.add_argument("--samples", type=int, help="at most so many samples of each mode")
    made.add_argument("--sample", type=int, help="this sample of each mode alone")
    made.add_argument("--shard", default="1/1", help="K/N: the Kth of N parts")
    made.add_argument("--workers", type=int, default=2, help="processes, of one thread each")
    made.add_argument("--results", type=Path, default=Path("build/opinfo"), help="the folder of results")
    made.add_argument("--resume", action="store_true", help="leave out what the folder has results for")
    made.add_argument("--failed-only", action="store_true", help="run what failed last time again")
    made.add_argument("--out", type=Path, help="write the result file here too")
    return made


def limits(options: argparse.Namespace, dtype: str) -> dict[str, int | None]:
    """Return the number of samples for each mode; `None` for all."""
    found: dict[str, int | None] = {}
    for mode in options.modes.split(","):
        full = None if mode == "forward" and dtype == "f32" else FULL[mode]
        if options.sample is not None:
            full = options.sample + 1
        elif options.samples is not None:
            full = options.samples if full is None else min(full, options.samples)
        found[mode] = full
    return found


def tasks(options: argparse.Namespace, known: dict[Unit, UnitResult]) -> list[Task]:
    """Return the units that the options select."""
    number, of = map(int, options.shard.split("/"))
    chosen = list(units(options.entries.split(","), options.dtypes.split(","), options.device))[
        number - 1 :: of
    ]
    made = []
    for unit in chosen:
        wanted = limits(options, unit.dtype)
        before = known.get(unit)
        only = None
        if options.sample is not None:
            only = frozenset((mode, options.sample) for mode in wanted)
        if options.failed_only:
            outcomes = before.outcomes.values() if before else ()
            only = frozenset(outcome.place for outcome in outcomes if outcome.verdict not in GOOD)
            if before is None or not only:
                continue
            wanted = before.limits
        elif options.resume and before is not None and before.limits == wanted:
            continue
        made.append(Task(unit, wanted, only=only))
    return made


def read(path: Path) -> dict[Unit, UnitResult]:
    """Read the results in a folder; of several for a unit the last one counts."""
    found = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            result = UnitResult.from_line(line)
            found[result.unit] = result
    return found


def judged(
    console: Console, work: list[Task], known: dict[Unit, UnitResult], options: argparse.Namespace
) -> None:
    """Run the units, put results into `known` and append them to the file as they come."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    path = options.results / "results.jsonl"
    with (
        Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress,
        open(path, "a", encoding="utf-8") as file,
    ):
        bar = progress.add_task("judging", total=len(work))
        partial = {task.unit for task in work if task.only is not None}
        for result in Pool(options.workers, options.results, options.device).results(work):
            if result.unit in partial and result.unit in known:
                result.outcomes = known[result.unit].outcomes | result.outcomes
                result.limits = known[result.unit].limits
            known[result.unit] = result
            file.write(result.to_line() + "\n")
            file.flush()
            report.print_failures(console, result)
            progress.update(bar, advance=1, description=f"{result.unit.entry} {result.unit.dtype}")


def main(arguments: list[str] | None = None) -> int:
    """Run, and return the exit code."""
    options = parser().parse_args(arguments)
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / "results.jsonl"
    known = read(path)
    if not (options.resume or options.failed_only or options.sample is not None) and path.exists():
        path.unlink()
        known = {}
    console = Console(soft_wrap=True)
    work = tasks(options, known)
    judged(console, work, known, options)
    results = list(known.values())
    report.print_summary(console, results)
    report.write(options.results / "results.json", results)
    if options.out is not None:
        report.write(options.out, results)
    bad = any(outcome.verdict not in GOOD for _, outcome in report.rows(results))
    return 1 if bad else 0
