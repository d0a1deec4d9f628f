"""Pauses of Python's cyclic garbage collector, for code that makes many objects and little garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_MOST_FROZEN = 1000
"""Number of frozen objects up to which they count as the interpreter's own: CPython 3.12 freezes 375 when it starts.
Where there are more, a program has frozen some (``gc.freeze``)."""


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collector, if it is on, for all threads of the process.

    Importing, compiling and loading make no garbage that matters, but enough objects for several collections. In a
    process with torch one takes a tenth of a second, with a model a quarter. At the end all objects
    of the process count as old, as if they had survived some collections, so that the next one does not visit them.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        _age_objects()
        gc.enable()


def _age_objects() -> None:
    """Move all objects of the process to the oldest generation, in constant time.

    Otherwise the next collection visits all objects that were made in a pause, and soon one visits all of the process.
    Nothing is moved where a program has frozen objects of its own, since ``gc.unfreeze`` would undo that.
    """
    if gc.get_freeze_count() <= _MOST_FROZEN:
        gc.freeze()
        gc.unfreeze()
