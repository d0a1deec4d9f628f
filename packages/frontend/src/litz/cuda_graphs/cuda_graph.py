"""Capture and replay with CUDA graphs, each in a memory pool of its own.

Captures share no pool: temporary memory of one would overlap results of another, which may be in use when the first
one is replayed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from litz.devices import gpu
from litz.host.runtime.load import HostFunction


class CudaGraphReplay:
    """A captured graph, replayed on torch's current stream.

    The stream of the last replay may still have to read buffers and results; another stream waits for all work on
    it, later work included.
    """

    def __init__(self, graph: gpu.CUDAGraph, capture: CudaGraphCapture) -> None:
        self._graph = graph
        self._capture = capture
        self._last: gpu.Stream | None = None

    def wait(self, buffers: Sequence[Tensor]) -> None:
        """See :class:`litz.cuda_graphs.runner.GraphReplay`."""
        stream = gpu.current_stream()
        if self._last is not None and stream != self._last:
            stream.wait_stream(self._last)
            for each in buffers:
                # Freed buffers are not reused before this stream has read them.
                each.record_stream(stream)

    def run(self) -> None:
        """See :class:`litz.cuda_graphs.runner.GraphReplay`."""
        self._last = self._capture.replay(self._graph)


class CudaGraphCapture:
    """Captures on a stream of its own, as CUDA requires, and replays on torch's current stream.

    A replay waits for the last one where that was on another stream, since library workspaces are shared. Threads
    exclude each other.
    """

    def __init__(self, device: int) -> None:
        self._lock = threading.Lock()
        self._side = gpu.Stream(device)
        self._last: gpu.Stream | None = None
        self._done = gpu.Event()

    def is_free(self) -> bool:
        """See :class:`litz.cuda_graphs.runner.GraphCapture`."""
        return not gpu.is_current_stream_capturing()

    def capture(self, call: HostFunction, args: list[Any]) -> tuple[CudaGraphReplay, list[Any]]:
        """See :class:`litz.cuda_graphs.runner.GraphCapture`."""
        with self._lock:
            self._side.wait_stream(gpu.current_stream())
            graph = gpu.CUDAGraph()
            with gpu.stream(self._side):
                # Calls of other threads are not captured and are allowed.
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    results = list(call(args))
                finally:
                    graph.capture_end()
            gpu.current_stream().wait_stream(self._side)
        return CudaGraphReplay(graph, self), results

    def replay(self, graph: gpu.CUDAGraph) -> gpu.Stream:
        """Replay a graph; return the stream that it runs on."""
        stream = gpu.current_stream()
        with self._lock:
            if self._last is not None and stream != self._last:
                stream.wait_event(self._done)
            graph.replay()
            self._last = stream
            self._done.record(stream)
        return stream


@functools.cache
def capture_of(device: int) -> CudaGraphCapture:
    """Return the capture object of a device, given its ordinal."""
    return CudaGraphCapture(device)
