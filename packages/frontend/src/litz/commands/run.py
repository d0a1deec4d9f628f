"""``litz run``: a script is run with litz as the default backend, and its counters are printed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from torch._dynamo.utils import counters

from litz.backend import NAME
from litz.commands.scripts import default_backend, run_script


def run(script: str, arguments: Sequence[str]) -> int:
    """Run a script with litz as the default backend; print to stderr what was compiled, and return its exit status.

    The counters are printed too where the script raises an exception, which is then raised again.
    """
    try:
        with default_backend():
            return run_script(script, arguments)
    finally:
        _print_counters(Console(stderr=True))


def _print_counters(console: Console) -> None:
    """Print the counters of litz."""
    found: dict[str, int] = dict(counters.get(NAME, {}))
    if not found:
        console.print(
            "litz compiled no graph: the script calls no compiled function, or names another backend"
        )
        return
    table = Table("counter", title="litz")
    table.add_column("value", justify="right")
    for name, value in sorted(found.items()):
        table.add_row(name, f"{value:,}")
    console.print(table)
