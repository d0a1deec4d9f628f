"""Recording with CUDA graphs. All recordings of a device share one pool of memory: what one needs while it runs, the
next may use. Their results stay allocated."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from litz.host.load import HostFunction

T = TypeVar("T")


class CudaRecorder:
    """Records on a stream of its own, as CUDA asks, and replays on torch's current one.

    A replay waits for the last one where that was on another stream: they share memory. Threads take turns.
    """

    def __init__(self, device: int) -> None:
        self._lock = threading.Lock()
        self._pool = torch.cuda.graph_pool_handle()
        self._side = torch.cuda.Stream(device)
        self._last: torch.cuda.Stream | None = None
        self._done = torch.cuda.Event()
        # A pool goes with the last recording in it, and cannot be used again: this one stays.
        self._anchor = self._captured(lambda: torch.empty(1, device=self._side.device))

    def record(self, call: HostFunction, args: list[Any]) -> tuple[Callable[[], None], list[Any]]:
        """See :class:`litz.replay.replayed.Recorder`."""
        with self._lock:
            self._side.wait_stream(torch.cuda.current_stream())
            graph, results = self._captured(lambda: list(call(args)))
            torch.cuda.current_stream().wait_stream(self._side)
        return functools.partial(self._replay, graph), results

    def _captured(self, work: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        """What ``work`` launches, and what it gives."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._side):
            # Other threads may go on: what they do is not recorded, and does no harm.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                results = work()
            finally:
                graph.capture_end()
        return graph, results

    def _replay(self, graph: torch.cuda.CUDAGraph) -> None:
        stream = torch.cuda.current_stream()
        with self._lock:
            if self._last is not None and stream != self._last:
                stream.wait_event(self._done)
            graph.replay()
            self._last = stream
            self._done.record(stream)


@functools.cache
def recorder_of(device: int) -> CudaRecorder:
    """The recorder of a device, which has one pool."""
    return CudaRecorder(device)
