"""Runs passes in order, with a hook between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from litz_ir.errors import LitzError, PassError
from litz_ir.passes.base import Pass, PassContext

T = TypeVar("T")
Hook = Callable[[str, object, object], None]
"""Called after each pass with its name, what went in and what came out: verify, dump or check there."""


@dataclass(slots=True)
class Timings:
    """Seconds per pass, in the order run."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def run_passes(
    passes: Sequence[Pass[T]],
    data: T,
    context: PassContext,
    *,
    hooks: Sequence[Hook] = (),
    timings: Timings | None = None,
    fuel: int | None = None,
) -> T:
    """Apply ``passes`` to ``data``. ``fuel`` stops after so many passes, for bisecting.

    An exception that is no litz error is reported as :class:`PassError` naming the pass.
    """
    for count, item in enumerate(passes):
        if fuel is not None and count >= fuel:
            break
        start = time.perf_counter()
        try:
            result = item.apply(data, context)
        except LitzError:
            raise
        except Exception as error:
            raise PassError(
                f"pass {item.name} failed: {type(error).__name__}: {error}",
                hint="report this with the graph's text form",
            ) from error
        if timings is not None:
            timings.add(item.name, time.perf_counter() - start)
        for hook in hooks:
            hook(item.name, data, result)
        data = result
    return data
