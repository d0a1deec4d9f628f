"""The child processes of a process: each compiles one graph at a time, and is reused for later ones."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from litz.service.background import CompilationCancelled
from litz.service.child import PROGRAM, Child
from litz_ir.errors import ProcessFailed


class ChildPool:
    """Child processes, as many as graphs are compiled at once. It is thread-safe."""

    def __init__(self, program: str = PROGRAM) -> None:
        self._program = program
        self._changed = threading.Condition()
        self._idle: list[Child] = []
        self._busy: list[Child] = []
        self._closed = False

    @contextlib.contextmanager
    def child(self, limit: int) -> Iterator[Child]:
        """Take a child that nobody uses, a new one where there are less than ``limit``; the last one used comes
        first.

        Raises ``CompilationCancelled`` once the pool is closed, also in place of the error of a child that this killed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._busy) < max(1, limit))
            if self._closed:
                raise CompilationCancelled
            child = self._idle.pop() if self._idle else Child(self._program)
            self._busy.append(child)
        try:
            yield child
        except ProcessFailed:
            if self._is_closed():
                raise CompilationCancelled from None
            raise
        finally:
            if child.asked:  # a later answer would belong to this graph
                child.close()
            with self._changed:
                self._busy.remove(child)
                if self._is_closed():
                    child.close()
                else:
                    self._idle.append(child)
                self._changed.notify_all()

    def _is_closed(self) -> bool:
        """Report whether the pool was closed, which another thread may do at any time."""
        return self._closed

    def pids(self) -> list[int]:
        """Return the ids of the processes that run."""
        with self._changed:
            return [each.pid for each in (*self._idle, *self._busy) if each.pid is not None]

    def close(self) -> None:
        """Kill all processes, also those that compile, whose compilations are cancelled."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            idle, self._idle = self._idle, []
            busy = tuple(self._busy)
        for child in idle:
            child.close()
        for child in busy:
            child.kill()
