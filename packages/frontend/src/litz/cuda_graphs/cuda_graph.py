"""Recording with CUDA graphs, each in memory of its own.

Recordings share none: what one needs while it runs would lie where another one's results are, which a caller may still
hold when the first runs again.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from litz.host.load import HostFunction


class CudaGraphReplay:
    """A recorded graph on torch's current stream.

    Its arguments' buffers and its results stay where they are, and the stream that it ran on last may still have to
    read them: another one waits for all that was asked of that stream, what came after the graph included.
    """

    def __init__(self, graph: torch.cuda.CUDAGraph, recorder: CudaGraphCapture) -> None:
        self._graph = graph
        self._recorder = recorder
        self._last: torch.cuda.Stream | None = None

    def wait(self, buffers: Sequence[Tensor]) -> None:
        """See :class:`litz.cuda_graphs.runner.GraphReplay`."""
        stream = torch.cuda.current_stream()
        if self._last is not None and stream != self._last:
            stream.wait_stream(self._last)
            for each in buffers:
                # Freed, they are nobody else's before this stream is done with them.
                each.record_stream(stream)

    def run(self) -> None:
        """See :class:`litz.cuda_graphs.runner.GraphReplay`."""
        self._last = self._recorder.replay(self._graph)


class CudaGraphCapture:
    """Records on a stream of its own, as CUDA asks, and replays on torch's current one.

    A replay waits for the last one where that was on another stream: workspaces of libraries are shared. Threads take
    turns.
    """

    def __init__(self, device: int) -> None:
        self._lock = threading.Lock()
        self._side = torch.cuda.Stream(device)
        self._last: torch.cuda.Stream | None = None
        self._done = torch.cuda.Event()

    def is_free(self) -> bool:
        """See :class:`litz.cuda_graphs.runner.Recorder`."""
        return not torch.cuda.is_current_stream_capturing()

    def capture(self, call: HostFunction, args: list[Any]) -> tuple[CudaGraphReplay, list[Any]]:
        """See :class:`litz.cuda_graphs.runner.Recorder`."""
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
        return CudaGraphReplay(graph, self), results

    def replay(self, graph: torch.cuda.CUDAGraph) -> torch.cuda.Stream:
        """Replay a graph; the stream that it runs on."""
        stream = torch.cuda.current_stream()
        with self._lock:
            if self._last is not None and stream != self._last:
                stream.wait_event(self._done)
            graph.replay()
            self._last = stream
            self._done.record(stream)
        return stream


@functools.cache
def capture_of(device: int) -> CudaGraphCapture:
    """The recorder of a device."""
    return CudaGraphCapture(device)
