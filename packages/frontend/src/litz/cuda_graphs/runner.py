"""A runner that captures a compiled graph as a CUDA graph and replays it, without overwriting results in use.

A replay reads and writes the addresses of the capture. An input that has the same address as in the previous call is
static: it is read there. Other inputs are copied to buffers. Results are returned in the memory of the capture.
Where one is still in use in the next call, the graph is captured again in other memory: from then on either two
captures alternate, or the results in use are copied. So no result that a caller refers to is ever overwritten,
whatever the order of calls.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from litz.cuda_graphs.memory import copied, fill, handed_out, like, shifted
from litz.host.runtime.load import HostFunction
from litz.host.runtime.torch_memory import own
from litz.reports.failures import Failures
from litz.settings import Config

log = logging.getLogger("litz")

WARMUP_CALLS = 2
"""Calls before the first capture: libraries allocate workspaces, and saved tensors get their final addresses."""

_MAX_SETTLING_CALLS = 4
"""Most further calls that a graph waits for its arguments to keep their addresses."""

MAX_CAPTURES = 6
"""Most captures of a graph, after which it runs without CUDA graphs: each one runs it, and may take memory."""


_MAX_LIVE_GRAPHS = 2
"""Most captures of a graph at a time, for calls that find the results of the last one in use."""


class GraphReplay(Protocol):
    """A captured call, which can be repeated in its memory."""

    def wait(self, buffers: Sequence[Tensor]) -> None:
        """Make later work on the device wait for everything that may still access this memory.

        Called before arguments are copied into the capture's own ``buffers``.
        """

    def run(self) -> None:
        """Repeat the call; its results are read from now on. Raises only where nothing was launched."""


class GraphCapture(Protocol):
    """Captures calls on a device."""

    def is_free(self) -> bool:
        """Return False while another capture is active, which then includes the calls made meanwhile."""

    def capture(self, call: HostFunction, args: list[Any]) -> tuple[GraphReplay, list[Any]]:
        """Capture a call; return its replay, and its results, which each replay fills again."""


@dataclass(frozen=True, slots=True)
class _Storage:
    """Memory of results of a capture."""

    pointer: int
    """Address of the storage object, for its use count."""

    count: int
    """Use count after the capture."""

    positions: list[int]
    """Positions of the results in this memory."""

    nbytes: int
    """Size in bytes."""

    @property
    def is_in_use(self) -> bool:
        """True where a tensor outside the capture refers to the memory."""
        return bool(torch._C._storage_Use_Count(self.pointer) > self.count)


@dataclass(slots=True)
class _LiveGraph:
    """A captured call with its inputs and results."""

    replay: GraphReplay
    static: list[tuple[int, int]]
    """Position and address of the static inputs."""

    copied: list[tuple[int, Tensor]]
    """Position and buffer of the other inputs."""

    results: list[Tensor | None]
    """Results of the captured call."""

    starts: list[int]
    """Storage offset of each argument in the capture, in elements."""

    storages: list[_Storage]
    """Memory of the results."""

    def moved(self, args: Sequence[Any]) -> list[int]:
        """Return the positions of static inputs that have another address now."""
        return [k for k, address in self.static if args[k].data_ptr() != address]

    def in_use(self) -> list[_Storage]:
        """Return the memory of results that are in use."""
        return [each for each in self.storages if each.is_in_use]


class CudaGraphRunner:
    """The graph ``call`` as a function of its list of arguments, which it empties.

    ``peak`` is the peak memory of a call in bytes, results included. ``overwritten`` are the positions of the
    arguments that the call overwrites. ``shared`` gives the position of the argument whose memory contains a result,
    by the position of the result. ``failures`` receives failures to capture. After one, ``obstacle`` is the reason
    and ``call`` runs without CUDA graphs.
    """

    def __init__(
        self,
        call: HostFunction,
        capture: GraphCapture,
        peak: int,
        overwritten: frozenset[int] = frozenset(),
        shared: dict[int, int] | None = None,
        failures: Failures | None = None,
    ) -> None:
        self._failures = Failures(Config()) if failures is None else failures
        self._call = call
        self._capture = capture
        self._peak = peak
        self._overwritten = overwritten
        self._shared = shared or {}
        self._last_addresses: list[int] = []
        self._steady: set[int] = set()
        self._calls = 0
        self._captures = 0
        self._copied_out: set[int] = set()
        self._live: list[_LiveGraph] = []  # the last one replayed at the end
        self._lock = threading.Lock()
        self.obstacle = ""

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Run, capture and run, or replay."""
        with self._lock:
            if self.obstacle:
                return self._call(args)
            try:
                found = self._ready(args)
                if found is not None:
                    found.replay.run()
            except Exception as error:  # capturing may raise anything
                found = None
                self._give_up(f"capturing it failed: {type(error).__name__}: {error}")
                self._failures.report(error, "replay", "a graph is not replayed")
            return self._call(args) if found is None else self._replayed_results(found, args)

    def _ready(self, args: Sequence[Any]) -> _LiveGraph | None:
        """Return a capture with the arguments in its buffers; ``None`` where this call runs without one."""
        if not self._capture.is_free() or (not self._captures and not self._is_settled(args)):
            return None
        found = self._usable(args)
        if found is None:
            if self._captures == MAX_CAPTURES:
                self._give_up("its arguments or results have other addresses in every call")
                log.warning("litz: a graph is not replayed: %s", self.obstacle)
                return None
            self._captures += 1
            found = self._captured(args)
            self._live.append(found)
        buffers = [buffer for _, buffer in found.copied]
        found.replay.wait(buffers)
        fill(buffers, [args[k] for k, _ in found.copied])
        return found

    def _give_up(self, why: str) -> None:
        """Run without CUDA graphs from now on."""
        self.obstacle = why
        self._live.clear()

    def _is_settled(self, args: Sequence[Any]) -> bool:
        """Note the arguments with the same address as in the previous call; return True where these are the same
        twice in a row.

        It takes some calls to warm up. A graph whose arguments come from another one waits until that one is
        captured.
        """
        addresses = [each.data_ptr() for each in args]
        steady = {k for k, (a, b) in enumerate(zip(addresses, self._last_addresses, strict=False)) if a == b}
        settled = steady == self._steady or self._calls == WARMUP_CALLS + _MAX_SETTLING_CALLS
        self._last_addresses, self._steady = addresses, steady
        self._calls += 1
        return settled and self._calls > WARMUP_CALLS

    def _usable(self, args: Sequence[Any]) -> _LiveGraph | None:
        """Return a capture that reads the right memory and overwrites no result in use; drop those that never will."""
        for graph in self._live.copy():
            moved = graph.moved(args)
            if moved:
                self._steady.difference_update(moved)
                self._live.remove(graph)
            elif not graph.in_use():
                self._live.remove(graph)
                self._live.append(graph)
                return graph
        if self._live and not self._may_capture_another(self._live[-1].in_use()):
            for storage in self._live[-1].in_use():
                self._copied_out.update(storage.positions)
            # Their memory lives as long as the results in use.
            self._live.clear()
        return None

    def _may_capture_another(self, in_use: Sequence[_Storage]) -> bool:
        """Report whether another capture is better than copies of the results in use: it takes no more memory than
        the copies and their originals."""
        return len(self._live) < _MAX_LIVE_GRAPHS and 2 * sum(each.nbytes for each in in_use) >= self._peak

    def _captured(self, args: Sequence[Any]) -> _LiveGraph:
        """Capture a call with these arguments."""
        static = [(k, each.data_ptr()) for k, each in enumerate(args) if k in self._steady]
        with torch.inference_mode(False):  # buffers are filled in any mode
            copied = [(k, like(each)) for k, each in enumerate(args) if k not in self._steady]
        fill([buffer for _, buffer in copied], [args[k] for k, _ in copied])
        given = list(args)
        for k, buffer in copied:
            given[k] = buffer
        starts = [each.storage_offset() for each in given]
        replay, results = self._capture.capture(self._call, given)
        with torch.inference_mode(False):  # inference tensors are made when results are returned
            results = [None if each is None else own(each) for each in results]
        return _LiveGraph(replay, static, copied, results, starts, self._storages(results))

    def _storages(self, results: Sequence[Tensor | None]) -> list[_Storage]:
        """Return the memory of results that are not in an argument's memory."""
        positions: dict[int, list[int]] = {}
        sizes: dict[int, int] = {}
        for k, each in enumerate(results):
            if each is not None and k not in self._shared:
                pointer = each.untyped_storage()._cdata
                positions.setdefault(pointer, []).append(k)
                sizes[pointer] = each.untyped_storage().nbytes()
        use_count = torch._C._storage_Use_Count
        return [
            _Storage(pointer, use_count(pointer), found, sizes[pointer])
            for pointer, found in positions.items()
        ]

    def _replayed_results(self, graph: _LiveGraph, args: list[Any]) -> list[Any]:
        """Return the results of a replay, and copy overwritten buffers back to their arguments."""
        changed = [(args[k], buffer) for k, buffer in graph.copied if k in self._overwritten]
        fill([given for given, _ in changed], [buffer for _, buffer in changed])
        results = self._results(graph, args)
        args.clear()
        return results

    def _results(self, graph: _LiveGraph, args: Sequence[Any]) -> list[Tensor | None]:
        """Return new tensors over the results' memory, or over copies of it."""
        made = handed_out(graph.results)
        for storage in graph.storages if self._copied_out else ():
            if not self._copied_out.isdisjoint(storage.positions):
                found = [
                    each for each in map(graph.results.__getitem__, storage.positions) if each is not None
                ]
                for position, copy in zip(storage.positions, copied(found), strict=True):
                    made[position] = copy
        for position, source in self._shared.items():
            result, base = graph.results[position], args[source]
            if result is not None:
                made[position] = shifted(result, base, graph.starts[source])
        return made
