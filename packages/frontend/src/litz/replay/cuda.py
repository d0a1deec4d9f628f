"""Recording with CUDA graphs, each in memory of its own.

Recordings share none: what one needs while it runs would lie where another one's results are, which a caller may still
hold when the first runs again.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from litz.host.load import HostFunction


class CudaRecorder:
    """Records on a stream of its own, as CUDA asks, and replays on torch's current one.

    A replay waits for the last one where that was on another stream: workspaces of libraries are shared. Threads take
    turns.
    """

    def __init__(self, device: int) -> None:
        self._lock = threading.Lock()
        self._side = torch.cuda.Stream(device)
        self._last: torch.cuda.Stream | None = None
        self._done = torch.cuda.Event()

    def record(self, call: HostFunction, args: list[Any]) -> tuple[Callable[[], None], list[Any]]:
        """See :class:`litz.replay.replayed.Recorder`."""
        with self._lock:
            self._side.wait_stream(torch.cuda.current_stream())
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(self._side):
                # Other threads may go on: what they do is not recorded, and does no harm.
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    results = list(call(args))
                finally:
                    graph.capture_end()
            torch.cuda.current_stream().wait_stream(self._side)
        return functools.partial(self._replay, graph), results

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
    """The recorder of a device."""
    return CudaRecorder(device)
