"""A thread for compilations that nobody waits for: one after another, and none at the end of the process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

_END_SECONDS = 5.0
"""Most seconds that the end of the process waits for a stage which runs in this process."""


class CompilationCancelled(BaseException):
    """Raised in a compilation whose process ends. No handler of failures may treat it as one of the graph."""


class Background:
    """Runs pieces of work in the order in which they are given, in one thread that ends with the last. It is
    thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._work: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, work: Callable[[], None]) -> None:
        """Add work, which handles its own errors; without effect once the process ends."""
        with self._changed:
            if self._closed:
                return
            self._work.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="litz-compile", daemon=True)
                self._thread.start()

    def wait(self, seconds: float | None) -> bool:
        """Wait until all work is done, ``seconds`` at most where they are given; report whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, seconds)

    def cancel(self) -> None:
        """Drop the work that has not begun, and accept no more."""
        with self._changed:
            self._closed = True
            self._work.clear()

    def close(self) -> None:
        """Cancel, and wait for the work that runs, a few seconds at most: the interpreter must not end below it."""
        self.cancel()
        if self._thread is not threading.current_thread():
            self.wait(_END_SECONDS)

    def _run(self) -> None:
        """Run work until there is none."""
        while True:
            with self._changed:
                if not self._work:
                    self._thread = None
                    self._changed.notify_all()
                    return
                work = self._work.popleft()
            try:
                work()
            except CompilationCancelled:
                self.cancel()
