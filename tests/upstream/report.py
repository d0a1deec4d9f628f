"""Tables of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from upstream.causes import cause_of
from upstream.outcome import LITZ, PASSED, PEERS, SET_ASIDE, SKIPPED, Outcome, Outcomes
from upstream.suites import SUITES


@dataclass(slots=True)
class Count:
    """Numbers of a suite's tests, and the tests that pass under another compiler of this torch alone."""

    tests: int = 0
    skipped: int = 0
    set_aside: int = 0
    elsewhere: int = 0
    right: int = 0
    unjudged: int = 0
    left: list[Outcome] = field(default_factory=list)

    @property
    def counted(self) -> int:
        """Return the number of tests that pass under some compiler."""
        return self.right + len(self.left)


def count(outcomes: Outcomes) -> dict[str, Count]:
    """Count the outcomes of each suite."""
    counts: dict[str, Count] = {}
    for suite, test, backend in sorted(outcomes):
        if backend != LITZ:
            continue
        outcome = outcomes[suite, test, backend]
        row = counts.setdefault(suite, Count())
        row.tests += 1
        if outcome.verdict == SKIPPED:
            row.skipped += 1
        elif outcome.verdict == SET_ASIDE:
            row.set_aside += 1
        elif outcome.verdict == PASSED:
            row.right += 1
        else:
            peers = [outcomes.get((suite, test, peer)) for peer in PEERS]
            if any(peer is not None and peer.verdict == PASSED for peer in peers):
                row.left.append(outcome)
            elif None in peers:
                row.unjudged += 1
            else:
                row.elsewhere += 1
    return counts


def table(counts: dict[str, Count]) -> str:
    """Return a Markdown table of the suites."""
    heads = ("suite", "tests", "skipped", "set aside", "fail elsewhere too", "counted", "right", "left")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for suite in SUITES:
        if (row := counts.get(suite.name)) is not None:
            numbers = (row.tests, row.skipped, row.set_aside, row.elsewhere, row.counted, row.right)
            cells = [f"`{suite.name}`", *map(str, numbers), str(len(row.left))]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def remaining(counts: dict[str, Count]) -> str:
    """Return a Markdown list of the tests that are left, by cause."""
    causes: dict[str, list[Outcome]] = {}
    for row in counts.values():
        for outcome in row.left:
            causes.setdefault(cause_of(outcome), []).append(outcome)
    parts = []
    for cause, group in sorted(causes.items(), key=lambda pair: -len(pair[1])):
        tests = Counter(outcome.test.rpartition("::")[2] for outcome in group)
        parts.append(f"- {cause} ({len(group)}): {', '.join(f'`{test}`' for test in sorted(tests))}")
    return "\n".join(parts) or "None."


def summary(outcomes: Outcomes) -> str:
    """Return the verdicts by suite, and each failure that counts, for the terminal."""
    counts = count(outcomes)
    lines = [table(counts)]
    for suite, row in counts.items():
        lines += [f"{suite}::{left.test}: {left.verdict}: {left.reason[:300]}" for left in row.left]
        if row.unjudged:
            lines.append(f"{suite}: {row.unjudged} failures have not run under other compilers")
    return "\n".join(lines)


def write(path: Path, outcomes: Outcomes) -> None:
    """Write the page of results: the text before its first table stays, the rest is replaced."""
    counts = count(outcomes)
    head = path.read_text(encoding="utf-8").partition("\n| suite |")[0]
    path.write_text(f"{head}\n{table(counts)}\n\n## What is left\n\n{remaining(counts)}\n", encoding="utf-8")
