"""Verification of weights in a thread, for which the first call of a model waits."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Verification:
    """The comparison of a checksum, which a thread makes.

    A process that was forked from this one has no such thread: it makes the comparison itself, unless it had succeeded.
    """

    def __init__(self, compare: Callable[[], None]) -> None:
        """Start the thread; ``compare`` raises where the checksum differs."""
        self._compare = compare
        self._process = os.getpid()
        self._succeeded = False
        pool = ThreadPoolExecutor(1, thread_name_prefix="litz-verify")
        self._future: Future[None] = pool.submit(self._run)
        pool.shutdown(wait=False)

    def wait(self) -> None:
        """Wait for the comparison, and raise its error."""
        if self._succeeded:
            return
        if os.getpid() == self._process:
            self._future.result()
        else:
            self._run()

    def _run(self) -> None:
        """Make the comparison."""
        self._compare()
        self._succeeded = True
