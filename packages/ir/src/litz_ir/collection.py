"""Python's cyclic garbage collector, paused while objects are made that are no garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_MOST_FROZEN = 1000
"""Most objects that the interpreter itself has kept from collections since its start: 375 in CPython 3.12."""


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collector, if it is on.

    Importing, compiling and loading make no garbage that matters, but enough objects for several collections. In a
    process with torch one takes a tenth of a second, with a model a quarter. What was made meanwhile is not left to
    the next collection either: it counts as old, as if it had survived some.
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
    """Move all objects to the oldest generation, in constant time.

    Otherwise the next collection visits all objects that were made in a pause, and soon one visits all of the process.
    A program that keeps its objects from collections for good (``gc.freeze``) is left alone.
    """
    if gc.get_freeze_count() <= _MOST_FROZEN:
        gc.freeze()
        gc.unfreeze()
