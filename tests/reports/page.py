"""Page of results: every report, its issue, and the verdict under each backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from reports.table import Report

MARK = "<!-- the table: `python -m reports --page docs/reports.md` writes what follows -->"
SIGNS = {"as eager": "yes", "differs": "no", "dies": "**dies**"}


def lines(
    rows: Sequence[Report], backends: Sequence[str], found: Mapping[tuple[str, str], str]
) -> Iterator[str]:
    """Yield the tables of the topics, and the reasons where litz differs."""
    yield "| as eager | " + " | ".join(backends) + " |"
    yield "|---" * (1 + len(backends)) + "|"
    counts = [sum(found[each.name, b] == "as eager" for each in rows) for b in backends]
    yield f"| of {len(rows)} | " + " | ".join(map(str, counts)) + " |"
    for topic, reports in groupby(rows, lambda each: each.topic):
        yield f"\n## {topic.capitalize()}\n"
        yield "| program | issue | fault | " + " | ".join(backends) + " |"
        yield "|---" * (3 + len(backends)) + "|"
        for each in reports:
            issue = f"[{each.source.partition('#')[2]}]({each.link})" if each.source else ""
            marks = " | ".join(SIGNS[found[each.name, backend]] for backend in backends)
            fault = each.fault.replace("*", r"\*").replace("|", r"\|")
            yield f"| `{each.name}` | {issue} | {fault} | {marks} |"
    reasons = [each for each in rows if each.differs]
    if reasons:
        yield "\n## Where litz differs\n"
        yield "| program | reason |"
        yield "|---|---|"
        yield from (f"| `{each.name}` | {each.differs} |" for each in reasons)


def write_page(
    path: Path, rows: Sequence[Report], backends: Sequence[str], found: Mapping[tuple[str, str], str]
) -> None:
    """Replace what follows the mark in the page by the tables."""
    head = path.read_text(encoding="utf-8").partition(MARK)[0]
    path.write_text(f"{head}{MARK}\n\n" + "\n".join(lines(rows, backends, found)) + "\n", encoding="utf-8")
