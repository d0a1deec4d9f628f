"""The graphs and units that a process compiles, and the progress bar that shows them where that takes long."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from importlib import import_module

DELAY = 2.0
"""Seconds of compilation before the bar appears."""

_BAR = "litz.service.progress_bar"
"""Module of the bar, which loads Rich; imported when one appears."""


class Watch:
    """Counts of graphs and units since compilation began, shown as a bar while it goes on. It is thread-safe.

    The bar appears after :data:`DELAY` seconds if standard error is a terminal, and vanishes with the last graph.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active = 0
        self._timer: threading.Timer | None = None
        self._stop: threading.Event | None = None
        self.graphs = 0
        self.finished_graphs = 0
        self.units = 0
        self.finished_units = 0

    @contextlib.contextmanager
    def graph(self, shown: bool) -> Iterator[None]:
        """Count a graph while it is compiled; nothing is counted unless it is ``shown`` on a terminal."""
        if not (shown and sys.stderr is not None and sys.stderr.isatty()):
            yield
            return
        with self._lock:
            self._active += 1
            self.graphs += 1
            if self._timer is None:
                self._timer = threading.Timer(DELAY, self._appear)
                self._timer.daemon = True
                self._timer.start()
        try:
            yield
        finally:
            with self._lock:
                self._active -= 1
                self.finished_graphs += 1
                if self._active == 0:
                    self._vanish()

    def add_units(self, count: int) -> None:
        """Count units that are about to be compiled."""
        with self._lock:
            self.units += count

    def finish_unit(self) -> None:
        """Count a unit that has been compiled."""
        with self._lock:
            self.finished_units += 1

    def _vanish(self) -> None:
        """Remove the bar and start counting anew."""
        if self._timer is not None:
            self._timer.cancel()
            if self._stop is not None:
                self._stop.set()
                self._timer.join()
        self._timer = self._stop = None
        self.graphs = self.finished_graphs = self.units = self.finished_units = 0

    def _appear(self) -> None:
        """Show the bar until it has to vanish; runs in the timer's thread."""
        with self._lock:
            if self._active == 0 or self._timer is not threading.current_thread():
                return
            stop = self._stop = threading.Event()
        import_module(_BAR).show(self, stop)
