"""``python -m forms``: run the table in Triton's interpreter or on a device, and print one line of JSON a cell."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any

from forms import device, interpreted
from forms.form import Cell, Form
from forms.table import FORMS

Row = dict[str, Any]


def main(words: Sequence[str] | None = None) -> int:
    """Run the selected cells and return the exit code: 1 where a cell is wrong."""
    parser = argparse.ArgumentParser(prog="forms", description=__doc__)
    parser.add_argument("--device", choices=("interpreter", "cuda"), default="interpreter")
    parser.add_argument("--forms", default="*", help="patterns of names, separated by commas")
    parser.add_argument("--tails", default="exact,over,short,idle")
    parser.add_argument("--dtypes", default="*", help="patterns of dtypes, separated by commas")
    parser.add_argument("--slow", action="store_true", help="forms too that take minutes in the interpreter")
    parser.add_argument("--first-dtype", action="store_true", help="of each form's dtypes the first alone")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with one form at a time")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for a form")
    parser.add_argument("--out", type=Path, help="where rows go too")
    parser.add_argument(
        "--sources", type=Path, help="leave the kernels of exact full sizes here and run nothing"
    )
    parser.add_argument("--report", type=Path, help="print rows of such a file as a table in Markdown")
    given = parser.parse_args(words)
    if given.report is not None:
        print(table([json.loads(line) for line in given.report.read_text().splitlines()]))
        return 0
    forms = [form for form in FORMS if _any(form.name, given.forms)]
    if given.sources is not None:
        _leave_sources(forms, given.sources)
        return 0
    if given.device == "interpreter":
        forms = [form for form in forms if form.interpreted and (given.slow or not form.slow)]
    rows = _in_processes(forms, given) if given.workers > 1 else _here(forms, given)
    failed = count = 0
    for row in rows:
        count, failed = count + 1, failed + bool(row["difference"])
        line = json.dumps(row)
        print(line, flush=True)
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(line + "\n")
    print(f"{count - failed} of {count} cells right", file=sys.stderr)
    return 1 if failed else 0


def _any(name: str, patterns: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns.split(","))


def _cells(form: Form, given: argparse.Namespace) -> Iterator[Cell]:
    for cell in form.cells():
        if given.first_dtype and cell.dtype != form.dtypes[0]:
            continue
        if cell.tail in given.tails.split(",") and _any(cell.dtype, given.dtypes):
            yield cell


def _here(forms: Sequence[Form], given: argparse.Namespace) -> Iterator[Row]:
    """Run cells in this process."""
    with tempfile.TemporaryDirectory(prefix="litz-forms-") as folder:
        for form in forms:
            for cell in _cells(form, given):
                start, chosen = time.perf_counter(), True
                if given.device == "cuda":
                    found, chosen = device.wrong(cell)
                else:
                    found = interpreted.wrong(cell, Path(folder))
                seconds = round(time.perf_counter() - start, 2)
                yield _row(cell, found, chosen, seconds)


def _row(cell: Cell, found: str, chosen: bool, seconds: float = 0.0) -> Row:
    known: Row = {"case": cell.name, "form": cell.form.name, "tail": cell.tail, "dtype": cell.dtype}
    return known | {"difference": found, "chosen": chosen, "seconds": seconds}


def _in_processes(forms: Sequence[Form], given: argparse.Namespace) -> Iterator[Row]:
    """Run each form in a process of its own, so that a crash or a hang affects its cells alone."""

    def one(form: Form) -> list[Row]:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "forms",
            "--device",
            given.device,
            "--forms",
            form.name,
        ]
        command += ["--tails", given.tails, "--dtypes", given.dtypes]
        command += [f"--{flag}" for flag in ("slow", "first-dtype") if vars(given)[flag.replace("-", "_")]]
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            try:
                code = subprocess.run(command, stdout=output, stderr=errors, timeout=given.timeout).returncode
                end = f"exit code {code}"
            except subprocess.TimeoutExpired:
                end = f"{given.timeout:.0f} s passed"
            output.seek(0), errors.seek(0)
            rows: list[Row] = [
                json.loads(line) for line in output.read().splitlines() if line.startswith("{")
            ]
            done = {row["case"] for row in rows}
            lost = [cell for cell in _cells(form, given) if cell.name not in done]
            text = f"{end}: {errors.read()[-300:]}"
            return rows + [_row(cell, text, False) for cell in lost]

    with ThreadPoolExecutor(given.workers) as pool:
        for rows in pool.map(one, forms):
            yield from rows


def _leave_sources(forms: Sequence[Form], folder: Path) -> None:
    for form in forms:
        if form.interpreted:
            cell = Cell(form, "exact", form.dtypes[0])
            for source in interpreted.sources(cell):
                text = json.dumps(asdict(replace(source, grid_size=0)), sort_keys=True)
                (folder / f"{sha256(text.encode()).hexdigest()[:16]}.json").write_text(text)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown: a line for each form, a column for each tail, with counts of right
    dtypes."""
    tails = list(dict.fromkeys(row["tail"] for row in rows))
    lines = [f"| form | dtypes | {' | '.join(tails)} |", f"|---|---|{'---|' * len(tails)}"]
    for name in dict.fromkeys(row["form"] for row in rows):
        own = [row for row in rows if row["form"] == name]
        dtypes = ", ".join(dict.fromkeys(row["dtype"] for row in own))
        counts = []
        for tail in tails:
            of_tail = [row for row in own if row["tail"] == tail]
            counts.append(f"{sum(not row['difference'] for row in of_tail)} of {len(of_tail)}")
        lines.append(f"| {name} | {dtypes} | {' | '.join(counts)} |")
    return "\n".join(lines)
