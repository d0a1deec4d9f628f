"""Python floats that stay symbols in the graphs that AOTAutograd traces.

Dynamo passes a float that changes between calls as a 0-d f64 tensor whose element the graph reads. Torch then rewrites
the graph for backends without symbolic floats: it replaces operations on such a number by operations on its tensor,
and makes constants of all other uses, with a guard that recompiles for each new value. litz's kernels and calls take
floats as arguments, so its graphs skip that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from torch._functorch._aot_autograd import graph_compile

_PASS = "tensorify_python_scalars"
"""Name of torch's pass, in the module of AOTAutograd that calls it."""

_symbolic = ContextVar("litz_symbolic", default=False)


@contextmanager
def symbolic_floats() -> Iterator[None]:
    """Trace floats as symbols in graphs that AOTAutograd traces in this context; other threads are not affected."""
    rewrite = getattr(graph_compile, _PASS)
    if not hasattr(rewrite, "skips_for_litz"):
        setattr(graph_compile, _PASS, _skipped_where_floats_stay(rewrite))
    token = _symbolic.set(True)
    try:
        yield
    finally:
        _symbolic.reset(token)


def _skipped_where_floats_stay(rewrite: Callable[..., None]) -> Callable[..., None]:
    """Return torch's pass, which does nothing where floats stay symbols."""

    @wraps(rewrite)
    def run(*args: Any, **kwargs: Any) -> None:
        if not _symbolic.get():
            rewrite(*args, **kwargs)

    run.skips_for_litz = True  # type: ignore[attr-defined]  # so that it is wrapped once
    return run
