"""Time every case under eager, Inductor and litz.

Each case runs under each backend in a process of its own, on a fresh cache folder:
`python benchmarks/run.py --topics reduction --modes infer,train --warm --out rows.json`. With `--warm` each
compiled case runs once more on the cache folder that the first process left. The backend `dynamo` is graph capture
alone, the part of a first call that no backend can shorten. Exit code 1 when litz fails on a case or breaks its
error bound. With `--regret` litz alone runs, under the plans that its cost model chose and under forced ones
(`regret.py`); with `--scaling` graphs of up to 10,000 operations are compiled (`scaling.py`). Quote ratios from one
run on an idle machine, the worst case next to the geometric mean.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import regret_report
from cases import CASES
from processes import Row, answer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from scaling import measure_scaling

LIMIT = 900.0  # seconds that one process may take


@dataclass(frozen=True, slots=True)
class Job:
    """A process to run: a case under a backend, on a cache folder; `warm` when the folder was filled before."""

    case: str
    backend: str
    mode: str
    warm: bool

    def run(self, folder: str, seconds: float, threads: int) -> Row:
        """Run the process and return its row; for a failure a row with the last line of its output."""
        arguments = [self.case, self.backend, self.mode, "--seconds", str(seconds)]
        row: Row = {"case": self.case, "backend": self.backend, "mode": self.mode, "warm": self.warm}
        return row | answer("measure.py", arguments, folder, threads, LIMIT)


def jobs(names: list[str], backends: list[str], modes: list[str], warm: bool) -> Iterator[list[Job]]:
    """Yield the jobs that share a cache folder, in the order in which they run."""
    for mode in modes:
        for name in names:
            if mode == "train" and not CASES[name].trains:
                continue
            for backend in backends:
                again = [False, True] if warm and backend != "eager" else [False]
                yield [Job(name, backend, mode, second) for second in again]


def ratios(rows: list[Row], over: str, under: str, key: str, warm: bool = False) -> dict[str, float]:
    """Return `over`'s figure divided by `under`'s for every case and mode that both finished."""

    def figures(backend: str, warm: bool) -> dict[str, float]:
        chosen = [row for row in rows if row["backend"] == backend and row["warm"] == warm and key in row]
        return {f"{row['case']} ({row['mode']})": row[key] for row in chosen}

    upper, lower = figures(over, warm and over != "eager"), figures(under, warm)
    return {name: upper[name] / lower[name] for name in lower if name in upper}


def after_capture(rows: list[Row], warm: bool) -> list[Row]:
    """Return the rows with `compile`: the first call's time less that of graph capture, where that was timed."""
    captured = {
        (r["case"], r["mode"], r["warm"]): r["first"]
        for r in rows
        if r["backend"] == "dynamo" and "first" in r
    }

    def left(row: Row) -> Row:
        capture = captured.get((row["case"], row["mode"], warm))
        timed = row["warm"] == warm and "first" in row and capture is not None
        return row | {"compile": max(row["first"] - capture, 1e-3)} if timed else row

    return [left(row) for row in rows]


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def line_of(row: Row, eager: Row | None) -> str:
    """Return a row as one line of text."""
    head = f"{row['mode']:5} {row['case']:22} {row['backend']:9}" + (" warm" if row["warm"] else "     ")
    if "failure" in row:
        return f"{head} failed: {row['failure']}"
    text = f"{head} {row['median'] * 1e3:9.3f} ms"
    if eager is not None and "median" in eager and row["backend"] != "eager":
        text += f"  {eager['median'] / row['median']:6.2f}x eager"
        text += f"  first {row['first']:6.2f} s  error {row['error']:.1e}"
    return text


def summary(rows: list[Row], backends: list[str]) -> Table:
    """Return the table of ratios: geometric mean, worst case and its name."""
    rows = after_capture(after_capture(rows, warm=False), warm=True)
    table = Table(title="greater is better; one run, one machine")
    for heading in ("ratio", "cases", "geometric mean", "worst", "worst case"):
        table.add_column(heading, justify="left" if heading in ("ratio", "worst case") else "right")
    compiled = [backend for backend in backends if backend not in ("eager", "dynamo")]
    wanted = [(f"speed of {name} over eager", "eager", name, "median", False) for name in compiled]
    wanted += [
        ("speed of litz over inductor", "inductor", "litz", "median", False),
        ("speed of litz with symbolic sizes over litz", "litz", "litz-dynamic", "median", False),
        ("first call of inductor over litz", "inductor", "litz", "first", False),
        ("warm first call of inductor over litz", "inductor", "litz", "first", True),
        ("the same less graph capture, cold", "inductor", "litz", "compile", False),
        ("the same less graph capture, warm", "inductor", "litz", "compile", True),
    ]
    wanted += [(f"peak memory of eager over {name}", "eager", name, "peak", False) for name in compiled]
    for title, over, under, key, warm in wanted:
        found = ratios(rows, over, under, key, warm)
        if found:
            worst = min(found, key=found.__getitem__)
            mean = geometric_mean(list(found.values()))
            table.add_row(title, str(len(found)), f"{mean:.3f}", f"{found[worst]:.3f}", worst)
    return table


def broken(rows: list[Row]) -> list[str]:
    """Return litz's failures, and its errors against eager above the case's bound."""
    found = []
    for row in rows:
        if row["backend"] in ("litz", "litz-dynamic"):
            name = f"{row['case']} ({row['mode']})"
            if "failure" in row:
                found.append(f"{name}: {row['failure']}")
            elif not row["error"] <= CASES[row["case"]].bound:
                found.append(f"{name}: error {row['error']:.2e} against eager")
    return found


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--backends",
        default="eager,inductor,litz",
        help="also dynamo (graph capture alone), litz-dynamic (symbolic sizes)",
    )
    parser.add_argument("--modes", default="infer", help="infer, train or both")
    parser.add_argument("--cases", default="", help="names, with commas between them; all of them by default")
    parser.add_argument(
        "--topics", default="", help=", ".join(sorted({case.topic for case in CASES.values()}))
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each case is timed")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--regret",
        action="store_true",
        help="compare litz's plans with forced ones and say where it chose wrong",
    )
    parser.add_argument("--warm", action="store_true", help="run again on the cache that the first run left")
    parser.add_argument("--out", type=Path, help="write all rows as JSON")
    parser.add_argument(
        "--scaling", action="store_true", help="compile graphs of up to 10,000 operations instead"
    )
    parser.add_argument("--chart", type=Path, help="write speeds over eager as a PNG")
    options = parser.parse_args()
    unknown = {name for name in options.cases.split(",") if name} - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    return options


def main() -> int:
    """Run the selected jobs and print their results."""
    options = parse()
    if options.scaling:
        console = Console(width=110)
        rows, complaints = measure_scaling(console)
        return finish(rows, complaints, options.out, console)
    topics = set(filter(None, options.topics.split(",")))
    names = list(filter(None, options.cases.split(","))) or list(CASES)
    names = [name for name in names if not topics or CASES[name].topic in topics]
    modes = options.modes.split(",")
    console = Console()
    if options.regret:
        rows = regret_report.run(names, modes, options.seconds, options.threads, console)
        console.print(regret_report.summary(rows))
        return finish(rows, regret_report.broken(rows), options.out, console)
    backends = options.backends.split(",")
    planned = list(jobs(names, backends, modes, options.warm))
    rows = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(planned))
        for group in planned:
            progress.update(task, description=f"{group[0].case} under {group[0].backend}")
            with tempfile.TemporaryDirectory(prefix="litz-bench-") as folder:
                for job in group:
                    row = job.run(folder, options.seconds, options.threads)
                    rows.append(row)
                    same = [other for other in rows if (other["case"], other["mode"]) == (job.case, job.mode)]
                    eager = next((other for other in same if other["backend"] == "eager"), None)
                    console.print(line_of(row, eager), highlight=False, soft_wrap=True)
            progress.advance(task)
    console.print(summary(rows, backends))
    if options.chart:
        from chart import draw  # noqa: PLC0415  a library that only charts need

        compiled = [backend for backend in backends if backend not in ("eager", "dynamo")]
        draw({backend: ratios(rows, "eager", backend, "median") for backend in compiled}, options.chart)
    return finish(rows, broken(rows), options.out, console)


def finish(rows: list[Row], complaints: list[str], out: Path | None, console: Console) -> int:
    """Write the rows to the file that is named, print failures, and return the exit code."""
    if out is not None:
        machine = {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "machine": platform.machine(),
        }
        out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    for complaint in complaints:
        console.print(f"broken: {complaint}", style="red", highlight=False)
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main())
