"""The scheme ``async``: a graph runs as ATen operations until the thread of the service has compiled it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

import torch
from torch._guards import TracingContext, tracing

from litz.host.runtime.load import HostFunction
from litz.schemes.isolated import LoweringNeeded
from litz.service.service import CompileService, compile_service
from litz_ir.collection import collection_paused
from litz_ir.target import FailureCallback


class SwappedCall:
    """The call of a graph, which another one replaces between two calls. It is thread-safe.

    ``call`` takes the list of arguments, which it empties, and returns the sequence of results.
    """

    def __init__(self, call: HostFunction) -> None:
        self.call = call

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        return self.call(args)


def compiled_behind(
    aten: HostFunction,
    complete: Callable[[], HostFunction],
    report: FailureCallback,
    instead: str,
    service: CompileService | None = None,
) -> HostFunction:
    """Return ``aten`` as a call, which the result of ``complete`` replaces once the service's thread has run that.

    ``complete`` runs with the options and the AOT metadata of the caller. Its errors go to ``report``, with the
    consequence ``instead``; where that raises, so does every later call. Where it has to lower the graph again, the
    next call does that, in its thread.
    """
    swapped, options, metadata = SwappedCall(aten), copy_context(), _metadata()

    def made() -> HostFunction:
        with tracing(metadata):
            return complete()

    def failed(error: Exception) -> None:
        try:
            report(error, instead)
            swapped.call = aten
        except Exception as raised:
            swapped.call = _raising(raised)

    def work() -> None:
        try:
            swapped.call = options.run(made)
        except LoweringNeeded as needed:
            swapped.call = _lowering_first(partial(again, needed.lower), aten)
        except Exception as error:
            failed(error)

    def lowered(lower: Callable[[], None]) -> None:
        with tracing(metadata), collection_paused(), torch.utils._python_dispatch._disable_current_modes():
            lower()

    def again(lower: Callable[[], None]) -> None:
        swapped.call = aten
        try:
            options.run(lowered, lower)
        except Exception as error:
            failed(error)
        else:
            submit(work)

    def submit(work: Callable[[], None]) -> None:
        (service or compile_service()).background.submit(work)

    submit(work)
    return swapped


def _lowering_first(lower: Callable[[], None], call: HostFunction) -> HostFunction:
    """Return a call that calls ``lower`` before, once."""
    unclaimed = [lower]

    def run(args: list[Any]) -> Sequence[Any]:
        try:
            first = unclaimed.pop()
        except IndexError:  # another thread does it
            return call(args)
        first()
        return call(args)

    return run


def _metadata() -> TracingContext | None:
    """Return a context with AOTAutograd's metadata alone: to leave the caller's own would clear its symbols."""
    known = TracingContext.try_get()
    if known is None:
        return None
    own = TracingContext(None)
    own.fw_metadata = known.fw_metadata
    return own


def _raising(error: Exception) -> HostFunction:
    """Return a call that raises an error."""

    def run(args: list[Any]) -> Sequence[Any]:
        raise error

    return run
