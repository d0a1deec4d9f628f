"""Report of the cost model's regret: each case next to the best plan that forcing one decision gave."""

from __future__ import annotations

import statistics
import tempfile
from typing import Any

from cases import CASES
from processes import answer
from rich.console import Console
from rich.table import Table

Row = dict[str, Any]

WRONG = 1.05
"""The regret from which a choice counts as wrong; smaller ones may be noise."""

LIMIT = 3600.0  # seconds that one case may take, most of them for compiling its alternatives


def run(names: list[str], modes: list[str], seconds: float, threads: int, console: Console) -> list[Row]:
    """Measure the cases, each in a process of its own, and print each as it comes."""
    rows: list[Row] = []
    for mode in modes:
        for name in names:
            if mode == "train" and not CASES[name].trains:
                continue
            with tempfile.TemporaryDirectory(prefix="litz-regret-") as folder:
                arguments = [name, mode, "--seconds", str(seconds)]
                row = {"case": name, "mode": mode} | answer("regret.py", arguments, folder, threads, LIMIT)
            rows.append(row)
            console.print(case_table(row) if "failure" not in row else f"{title(row)}: {row['failure']}")
    return rows


def title(row: Row) -> str:
    """Return the name of a row: the case and how it ran."""
    return f"{row['case']} ({row['mode']})"


def case_table(row: Row) -> Table:
    """Return the table of a case: each forced plan that is another one than the chosen, fastest first."""
    table = Table(title=title(row), title_justify="left", caption=_verdict(row), caption_justify="left")
    for heading in ("alternative", "decision", "ms", "chosen / it", "error"):
        table.add_column(heading, justify="left" if heading in ("alternative", "decision") else "right")
    table.add_row("chosen", "", _ms(row["first"]), "1.00", "")
    timed = [each for each in row["alternatives"] if "median" in each]
    for each in sorted(timed, key=lambda each: float(each["median"])):
        ratio = row["first"] / each["median"]
        table.add_row(
            each["name"], each["decision"], _ms(each["median"]), f"{ratio:.2f}", f"{each['error']:.0e}"
        )
    return table


def _verdict(row: Row) -> str:
    """Return the result of the second heat, or the reason for which none was run."""
    lines = [f"regret {row['regret']:.2f}: chosen {_ms(row['chosen'])} ms"]
    lines[0] += f", {row['best']} {_ms(row['best_time'])} ms" if row["best"] else " is the fastest"
    same: dict[str, list[str]] = {}
    for each in row["alternatives"]:
        if "same" in each:
            same.setdefault(each["same"], []).append(each["name"])
        elif "failure" in each:
            lines.append(f"{each['name']} failed: {each['failure']}")
    lines += [f"same plan as {name}: {', '.join(others)}" for name, others in same.items()]
    return "\n".join(lines)


def summary(rows: list[Row]) -> Table:
    """Return a line for every case, and the geometric mean of their regrets below."""
    table = Table(title=f"regret: chosen / best; wrong from {WRONG} on", show_footer=True)
    finished = [row for row in rows if "regret" in row]
    mean = statistics.geometric_mean(row["regret"] for row in finished) if finished else 1.0
    table.add_column("case", f"geometric mean of {len(finished)}")
    for heading, footer in (("chosen ms", ""), ("best ms", ""), ("regret", f"{mean:.3f}")):
        table.add_column(heading, footer, justify="right")
    table.add_column("alternative")
    table.add_column("wrong decision")
    for row in finished:
        decision = decisions(row).get(row["best"], "") if row["regret"] >= WRONG else ""
        table.add_row(
            title(row), _ms(row["chosen"]), _ms(row["best_time"]), f"{row['regret']:.2f}", row["best"] or "",
            decision,
        )  # fmt: skip
    return table


def decisions(row: Row) -> dict[str, str]:
    """Return the decision that each alternative of a case forces, and with it those whose plan is the same."""
    named = {each["name"]: [each["decision"]] for each in row["alternatives"] if "same" not in each}
    for each in row["alternatives"]:
        if each.get("same") in named and each["decision"] not in named[each["same"]]:
            named[each["same"]].append(each["decision"])
    return {name: " or ".join(found) for name, found in named.items()}


def broken(rows: list[Row]) -> list[str]:
    """Return the failed alternatives, and those whose results differ from the chosen plan's by more than the case's
    bound."""
    found = [f"{title(row)}: {row['failure']}" for row in rows if "failure" in row]
    for row in rows:
        for each in row.get("alternatives", ()):
            name = f"{title(row)}, {each['name']}"
            if "failure" in each:
                found.append(f"{name}: {each['failure']}")
            elif not each["error"] <= CASES[row["case"]].bound:
                found.append(f"{name}: error {each['error']:.2e} against the chosen plan")
    return found


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
