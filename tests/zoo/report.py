"""Report of a run: a line for each case as it ends, and a page of tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from zoo.cases import LIBRARIES
from zoo.execution import MODES
from zoo.row import GOOD, PASSED, Outcome, Row, ordered

HEADINGS = ("name", "model", *MODES, "graphs", "kernels", "fallbacks", "first calls, s")


def line(row: Row) -> str:
    """Return a case in one line, and a line for each reason of a failure."""
    name = f"{row.case.library:12} {row.case.name}"
    if row.eager_error and not row.outcomes:
        return f"{name}: not in eager: {row.eager_error}"
    words = [f"{mode} {outcome.verdict} {outcome.seconds:.1f} s" for mode, outcome in row.outcomes.items()]
    reasons = [
        f"\n    {mode}: {o.reason}" for mode, o in row.outcomes.items() if o.verdict != PASSED and o.reason
    ]
    if row.eager_error:
        reasons.append(f"\n    not in eager: {row.eager_error}")
    return f"{name} ({row.title}): {', '.join(words)}{''.join(reasons)}"


def counts(rows: Iterable[Row]) -> str:
    """Return how many cases of each library ran, passed, failed and did not run in eager."""
    found = list(rows)
    lines = ["| library | families | right | wrong | not runnable in eager |", "|---|---|---|---|---|"]
    for library in LIBRARIES:
        of = [row for row in found if row.case.library == library]
        ran = [row for row in of if row.outcomes]
        right = sum(row.passed() for row in ran)
        lines.append(f"| {library} | {len(ran)} | {right} | {len(ran) - right} | {len(of) - len(ran)} |")
    return "\n".join(lines)


def page(rows: Iterable[Row], introduction: str) -> str:
    """Return the page of results in Markdown."""
    found = list(ordered(rows))
    parts = [introduction.rstrip(), counts(found)]
    bad = [row for row in found if not row.passed()]
    if bad:
        parts += ["## Wrong", "\n".join(_reasons(bad, GOOD))]
    elsewhere = [row for row in found if row.passed() and any(_differs(row))]
    if elsewhere:
        parts += [
            "## Differs without litz",
            'These differ from eager, or raise, in the same way under `backend="aot_eager"`.',
            "\n".join(_reasons(elsewhere, (PASSED,))),
        ]
    parts += ["## Operations left to ATen", _fallbacks(found)]
    for library in LIBRARIES:
        ran = [row for row in found if row.case.library == library and row.outcomes]
        if ran:
            parts += [f"## {library}", _table(ran)]
    for title, notes in (
        ("against single precision", "single"),
        ("with the signs of ReLUs fixed", "free_signs"),
    ):
        noted = [
            f"- {row.case.library} `{row.case.name}`, {mode}: {_inline(getattr(outcome, notes))}"
            for row in found
            for mode, outcome in row.outcomes.items()
            if getattr(outcome, notes)
        ]
        if noted:
            parts += [f"## Judged {title}", "\n".join(noted)]
    refused = [row for row in found if row.eager_error]
    if refused:
        lines = [f"- {row.case.library} `{row.case.name}`: {_inline(row.eager_error)}" for row in refused]
        parts += ["## Not runnable in eager", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _differs(row: Row) -> list[Outcome]:
    return [outcome for outcome in row.outcomes.values() if outcome.verdict != PASSED]


def _reasons(rows: list[Row], omitted: tuple[str, ...]) -> list[str]:
    return [
        f"- {row.case.library} `{row.case.name}`, {mode}: {outcome.verdict}: {_inline(outcome.reason)}"
        for row in rows
        for mode, outcome in row.outcomes.items()
        if outcome.verdict not in omitted
    ]


def _table(rows: list[Row]) -> str:
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    for row in rows:
        outcomes = row.outcomes.values()
        cells = [
            row.case.name,
            row.title,
            *(row.outcomes[mode].verdict if mode in row.outcomes else "not in eager" for mode in MODES),
            " + ".join(str(outcome.graphs) for outcome in outcomes),
            " + ".join(str(outcome.kernels) for outcome in outcomes),
            " + ".join(str(sum(outcome.fallbacks.values())) for outcome in outcomes),
            " + ".join(f"{outcome.seconds:.1f}" for outcome in outcomes),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _fallbacks(rows: list[Row]) -> str:
    """Count the operations that ran as their ATen routine by reason, and the cases that have them."""
    operations: Counter[str] = Counter()
    cases: Counter[str] = Counter()
    for row in rows:
        found: Counter[str] = Counter()
        for outcome in row.outcomes.values():
            found.update(outcome.fallbacks)
        operations.update(found)
        cases.update(found.keys())
    if not operations:
        return "None."
    lines = ["| reason | operations | families |", "|---|---|---|"]
    lines += [f"| {_inline(why)} | {count} | {cases[why]} |" for why, count in operations.most_common()]
    return "\n".join(lines)


def _inline(text: str) -> str:
    """Return text that stands in a table or a list as it is, shortened."""
    plain = text.replace("|", "/").replace("<", "(").replace(">", ")").replace("`", "'").replace("*", "·")
    return plain if len(plain) < 240 else plain[:240] + " …"


def write(path: Path, rows: Iterable[Row], introduction: str) -> None:
    """Write the page; the part of an old one before its first table is kept."""
    if path.exists():
        introduction = path.read_text(encoding="utf-8").partition("\n| library |")[0]
    path.write_text(page(rows, introduction), encoding="utf-8")
