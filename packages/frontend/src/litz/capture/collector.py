"""Python's cyclic garbage collector finds nothing while a graph is compiled, and takes long to see that."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """No cyclic collection in here, where it was on before. One pass over a process that has loaded a model takes a
    quarter of a second, and tracing a graph makes enough objects for several."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
