"""Report of a run: tables to read, and one JSON file to keep."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from opinfo.entries import family
from opinfo.outcome import EXCEPTED, GOOD, IN_PARTS, PASSED, Outcome, UnitResult

Row = tuple[UnitResult, Outcome]


def rows(results: Iterable[UnitResult]) -> list[Row]:
    """Yield every outcome with its unit."""
    return [(result, outcome) for result in results for outcome in result.outcomes.values()]


def rerun(result: UnitResult, outcome: Outcome) -> str:
    """Return the command that runs one sample again."""
    chosen = f"--entries '{result.unit.entry}' --dtypes {result.unit.dtype}"
    return f"nox -s opinfo -- {chosen} --modes {outcome.mode} --sample {outcome.index}"


def print_failures(console: Console, result: UnitResult) -> None:
    """Print the failures of a unit, each with the command that runs it again."""
    for outcome in result.outcomes.values():
        if outcome.verdict not in GOOD:
            unit = result.unit
            head = f"{unit.entry} {unit.dtype} {outcome.mode} {outcome.index}: {outcome.verdict}: {outcome.reason}"
            console.print(
                f"{head}\n    {outcome.sample}\n    {rerun(result, outcome)}", markup=False, highlight=False
            )


def table(title: str, heading: str, counts: dict[str, Counter[str]]) -> Table:
    """Return a table of verdicts, a line for each key of `counts`."""
    verdicts = sorted({v for counter in counts.values() for v in counter}, key=lambda v: (v not in GOOD, v))
    made = Table(title=title)
    made.add_column(heading)
    for verdict in verdicts:
        made.add_column(verdict, justify="right")
    for key, counter in counts.items():
        made.add_row(key, *(str(counter[verdict] or "") for verdict in verdicts))
    return made


def counted(found: list[Row], key: str) -> dict[str, Counter[str]]:
    """Count verdicts by family, dtype or mode."""
    counts: dict[str, Counter[str]] = {}
    for result, outcome in found:
        name = {"family": family(result.unit.entry), "dtype": result.unit.dtype, "mode": outcome.mode}[key]
        counts.setdefault(name, Counter())[outcome.verdict] += 1
    return dict(sorted(counts.items()))


def print_summary(console: Console, results: list[UnitResult]) -> None:
    """Print the verdicts by family, by dtype and by mode, and the counts of generated and ATen samples."""
    found = rows(results)
    for key in ("family", "dtype", "mode"):
        console.print(table(f"verdicts by {key}", key, counted(found, key)))
    how = Counter(outcome.how or "nobody" for _, outcome in found)
    console.print(f"computed by: {', '.join(f'{name} {count}' for name, count in how.most_common())}")
    verdicts = Counter(outcome.verdict for _, outcome in found)
    bad = sum(count for verdict, count in verdicts.items() if verdict not in GOOD)
    console.print(
        f"{len(found)} samples: {verdicts[PASSED]} pass, {verdicts[EXCEPTED]} exceptions, {bad} fail"
    )


def write(path: Path, results: list[UnitResult]) -> None:
    """Write the result file: totals, every exception and failure once for each unit and reason, units in short."""
    found = rows(results)
    data: dict[str, Any] = {
        "torch": torch.__version__,
        "machine": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "samples": len(found),
        "verdicts": dict(Counter(outcome.verdict for _, outcome in found).most_common()),
        "by_dtype": {name: dict(counter) for name, counter in counted(found, "dtype").items()},
        "by_family": {name: dict(counter) for name, counter in counted(found, "family").items()},
        "by_mode": {name: dict(counter) for name, counter in counted(found, "mode").items()},
        "computed_by": dict(Counter(outcome.how or "nobody" for _, outcome in found).most_common()),
        "not_passing": _grouped(found),
        "units": _units(results),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(key)}: {_spread(value)}" for key, value in data.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _spread(value: Any) -> str:
    """Return JSON with a line for each item of the outermost list or mapping."""
    if isinstance(value, list) and value:
        return "[\n  " + ",\n  ".join(json.dumps(item) for item in value) + "\n]"
    if isinstance(value, dict) and len(value) > 20:
        return "{\n  " + ",\n  ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n}"
    return json.dumps(value)


def _grouped(found: list[Row]) -> list[dict[str, Any]]:
    """Return exceptions and failures, with one row for samples of a unit that fail in the same way."""
    groups: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for result, outcome in found:
        if outcome.verdict != PASSED:
            reason = outcome.reason if len(outcome.reason) < 200 else outcome.reason[:200] + "…"
            key = (result.unit.entry, result.unit.dtype, outcome.verdict, reason[:40])
            row = groups.setdefault(
                key,
                {
                    "entry": result.unit.entry,
                    "dtype": result.unit.dtype,
                    "verdict": outcome.verdict,
                    "reason": reason,
                    "samples": [],
                },
            )
            row["samples"].append(f"{outcome.mode} {outcome.index}")
    return list(groups.values())


def _units(results: list[UnitResult]) -> dict[str, dict[str, list[int]]]:
    """Return, for each entry and dtype, the number of samples that pass, pass in parts, are exceptions, or fail."""
    units: dict[str, dict[str, list[int]]] = {}
    for result in sorted(results, key=lambda r: (r.unit.entry, r.unit.dtype)):
        counter = Counter(outcome.verdict for outcome in result.outcomes.values())
        bad = sum(count for verdict, count in counter.items() if verdict not in GOOD)
        counts = [counter[PASSED], counter[IN_PARTS], counter[EXCEPTED], bad]
        units.setdefault(result.unit.entry, {})[result.unit.dtype] = counts
    return units
