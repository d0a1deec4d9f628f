"""Python's cyclic garbage collector, paused while objects are made that are no garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collector, if it is on.

    Importing, compiling and loading make no garbage that matters, but enough objects for several collections. In a
    process with torch one takes a tenth of a second, with a model a quarter.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
