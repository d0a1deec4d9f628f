"""The bound on units that a process and its children compile at the same time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class UnitBudget:
    """Counts the units that are being compiled, in all threads and for all graphs of the process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = 0

    @contextlib.contextmanager
    def share(self, wanted: int, limit: int) -> Iterator[int]:
        """Wait for a free place, then take up to ``wanted`` of those that ``limit`` leaves; yield their number, at
        least 1."""
        limit = max(1, limit)
        with self._changed:
            self._changed.wait_for(lambda: self._taken < limit)
            count = max(1, min(wanted, limit - self._taken))
            self._taken += count
        try:
            yield count
        finally:
            with self._changed:
                self._taken -= count
                self._changed.notify_all()
