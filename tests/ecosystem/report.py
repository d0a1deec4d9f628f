"""Report of a run: a line for each case as it ends, and tables."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from ecosystem.catalogue import LIBRARIES, Case
from ecosystem.row import LITZ, PASSED, PEER, PLAIN, Outcome, Row

HEADINGS = ("program", "verdict", "graphs", "breaks", "recompiles", "fallbacks")
MARKER = "\n| library |"
"""Start of the tables in the page; the text before it is written by hand."""


def line(row: Row) -> str:
    """Return a case in one line, and a line for each reason of a failure and each fallback."""
    name = f"{row.case.library}/{row.case.name}"
    if row.eager_error:
        return f"{name}: not in eager: {row.eager_error}"
    words = [
        f"{backend} {outcome.verdict} {outcome.first:.1f} s{_ratio(outcome.call, row.call)}"
        for backend, outcome in row.outcomes.items()
    ]
    notes = [f"{backend}: {o.reason}" for backend, o in row.outcomes.items() if o.verdict != PASSED]
    litz = row.outcomes.get(LITZ)
    if litz is not None:
        notes += [f"{count} x {reason}" for reason, count in litz.fallbacks.items()]
    notes += [f"{what} {text}" for what, text in _other_counts(row)]
    return "\n    ".join([f"{name}: {'; '.join(words)}", *notes])


def _ratio(seconds: float, eager: float) -> str:
    return f", {seconds / eager:.2f} of eager's" if seconds and eager else ""


def _other_counts(row: Row) -> list[tuple[str, str]]:
    """Return the counts of Dynamo that are not those of the other backends: the name, and the numbers in words."""
    litz = row.outcomes.get(LITZ)
    if litz is None or litz.verdict not in (PASSED, "wrong", "fell back"):
        return []
    others = [(name, row.outcomes[name]) for name in (PLAIN, PEER) if name in row.outcomes]
    differing = []
    for what in ("graphs", "breaks", "recompiles"):
        counts = {name: getattr(outcome, what) for name, outcome in others if outcome.verdict != "raises"}
        if counts and getattr(litz, what) > min(counts.values()):
            words = ", ".join(f"{count} under {name}" for name, count in counts.items())
            differing.append((what, f"{getattr(litz, what)}, {words}"))
    return differing


def counts(rows: Iterable[Row]) -> str:
    """Return a table of the libraries: version, programs, and how many are right."""
    by_library: dict[str, list[Row]] = {}
    for row in rows:
        by_library.setdefault(row.case.library, []).append(row)
    lines = ["| library | version | programs | right | wrong | not in eager |", "|---|---|---|---|---|---|"]
    total: Counter[str] = Counter()
    for library in LIBRARIES:
        of = by_library.get(library.name, [])
        if of:
            ran = [row for row in of if LITZ in row.outcomes]
            right = sum(row.passed() for row in ran)
            version = max(row.version for row in of)
            numbers = (len(ran), right, len(ran) - right, len(of) - len(ran))
            total.update(dict(zip(("programs", "right", "wrong", "not"), numbers)))
            total["libraries"] += 1
            lines.append(f"| {library.name} | {version} | {' | '.join(map(str, numbers))} |")
    sums = [str(total[name]) for name in ("programs", "right", "wrong", "not")]
    lines.append(f"| all {total['libraries']} | | {' | '.join(sums)} |")
    return "\n".join(lines)


def tables(rows: Mapping[Case, Row]) -> str:
    """Return all tables in Markdown."""
    ordered = [
        rows[case]
        for library in LIBRARIES
        for name in library.programs()
        if (case := Case(library.name, name)) in rows
    ]
    ran = [row for row in ordered if LITZ in row.outcomes]
    sections = [counts(ordered)]
    if wrong := [row for row in ran if not row.passed()]:
        sections += ["## Wrong", "\n".join(_reason(row) for row in wrong)]
    if elsewhere := [row for row in ran if row.passed() and row.outcomes[LITZ].verdict != PASSED]:
        sections += ["## Differs without litz", "\n".join(_reason(row) for row in elsewhere)]
    sections += ["## Operations that run as ATen", _fallbacks(ran), "## Programs", _table(ran)]
    if single := [row for row in ran if row.single]:
        lines = [f"- {_name(row.case)}: {_inline(row.single)}" for row in single]
        sections += ["## Judged against single precision", "\n".join(lines)]
    if refused := [row for row in ordered if row.eager_error]:
        lines = [f"- {_name(row.case)}: {_inline(row.eager_error)}" for row in refused]
        sections += ["## Not runnable in eager", "\n".join(lines)]
    return "\n\n".join(sections) + "\n"


def _name(case: Case) -> str:
    return f"{case.library} `{case.name}`"


def _reason(row: Row) -> str:
    outcome = row.outcomes[LITZ]
    return f"- {_name(row.case)}: {outcome.verdict}: {_inline(outcome.reason)}"


def _table(rows: list[Row]) -> str:
    lines = [f"| {' | '.join(('library', *HEADINGS))} |", f"|{'---|' * (len(HEADINGS) + 1)}"]
    for row in rows:
        litz = row.outcomes[LITZ]
        others = [row.outcomes[name] for name in (PLAIN, PEER) if name in row.outcomes]
        cells = [
            row.case.library,
            row.case.name,
            litz.verdict,
            *(_count(litz, others, what) for what in ("graphs", "breaks", "recompiles")),
            str(sum(litz.fallbacks.values())),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _count(litz: Outcome, others: list[Outcome], what: str) -> str:
    """Return a count, and those of the other backends where they differ."""
    numbers = [getattr(outcome, what) for outcome in (litz, *others)]
    return str(numbers[0]) if len(set(numbers)) == 1 else " / ".join(map(str, numbers))


def _fallbacks(rows: list[Row]) -> str:
    """Count the operations that ran as their ATen routine, and the libraries that have them."""
    operations: Counter[str] = Counter()
    libraries: dict[str, set[str]] = {}
    for row in rows:
        for reason, count in row.outcomes[LITZ].fallbacks.items():
            operations[reason] += count
            libraries.setdefault(reason, set()).add(row.case.library)
    if not operations:
        return "None."
    lines = ["| operation | reason | operations | libraries |", "|---|---|---|---|"]
    for reason, count in operations.most_common():
        target, _, why = reason.partition(": ")
        lines.append(f"| `{target}` | {_inline(why)} | {count} | {', '.join(sorted(libraries[reason]))} |")
    return "\n".join(lines)


def times(rows: Iterable[Row]) -> str:
    """Return the geometric mean of litz's times of a call over eager's, in words."""
    ratios = [
        math.log(row.outcomes[LITZ].call / row.call)
        for row in rows
        if LITZ in row.outcomes and row.outcomes[LITZ].call and row.call
    ]
    return f"calls: {math.exp(sum(ratios) / len(ratios)):.2f} of eager's time" if ratios else ""


def _inline(text: str) -> str:
    """Return text that stands in a table or a list as it is, shortened, with files by their names."""
    plain = re.sub(r'"/[^"]*/', '"', text)
    plain = plain.replace("|", "/").replace("<", "(").replace(">", ")").replace("`", "'").replace("*", "·")
    return plain if len(plain) < 240 else plain[:240] + " …"


def write(path: Path, rows: Mapping[Case, Row]) -> None:
    """Write the tables into a page, after the text that it has before its first table."""
    text = path.read_text(encoding="utf-8") if path.exists() else "# Libraries\n"
    introduction = text.partition(MARKER)[0].rstrip()
    path.write_text(f"{introduction}\n\n{tables(rows)}", encoding="utf-8")
