"""The progress bar of a long compilation, on standard error."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from litz.service.progress import Watch

_INTERVAL = 0.1
"""Seconds between two looks at the counts."""


def show(watch: Watch, stop: threading.Event) -> None:
    """Show the counts until ``stop`` is set, then remove the bar."""
    columns = (TextColumn("litz compiles: {task.description}"), BarColumn(), TimeElapsedColumn())
    # Text that the program prints meanwhile is its own affair: its streams are not replaced.
    bar = Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task(_counts(watch), total=None)
        while not stop.wait(_INTERVAL):
            bar.update(
                task,
                description=_counts(watch),
                completed=watch.finished_units,
                total=watch.units or None,
            )


def _counts(watch: Watch) -> str:
    """Return the counts as text."""
    units = f", unit {watch.finished_units} of {watch.units}" if watch.units else ""
    return f"graph {watch.finished_graphs + 1} of {watch.graphs}{units}"
