"""The scheme ``async``: a graph runs as ATen operations until the thread of the service has compiled it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from torch._guards import TracingContext, tracing

from litz.host.runtime.load import HostFunction
from litz.service.service import CompileService, compile_service
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
    consequence ``instead``; where that raises, so does every later call.
    """
    swapped, options, metadata = SwappedCall(aten), copy_context(), _metadata()

    def made() -> HostFunction:
        with tracing(metadata):
            return complete()

    def work() -> None:
        try:
            swapped.call = options.run(made)
        except Exception as error:
            try:
                report(error, instead)
            except Exception as raised:
                swapped.call = _raising(raised)

    (service or compile_service()).background.submit(work)
    return swapped


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
