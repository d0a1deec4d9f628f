"""``litz doctor``: an installation is checked, and each fault is printed with what mends it."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from litz.commands.checks import State, checks

_MARKS: dict[State, str] = {
    "good": "[green]good   [/]",
    "warning": "[yellow]warning[/]",
    "broken": "[red]broken [/]",
}


def doctor(console: Console) -> int:
    """Print each check as it is made; return 1 where something is broken, else 0."""
    states: list[State] = []
    for check in checks():
        states.append(check.state)
        console.print(f"{_MARKS[check.state]} {escape(check.name)}: {escape(check.found)}", soft_wrap=True)
        if check.mend:
            console.print(f"        mend: {escape(check.mend)}", soft_wrap=True)
    broken, warned = states.count("broken"), states.count("warning")
    console.print(f"{len(states)} checks, {broken} broken, {warned} warnings")
    return 1 if broken else 0
