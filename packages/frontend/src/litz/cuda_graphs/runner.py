"""A compiled graph that is recorded, then replayed, with results that stay what they are.

A replay reads and writes the addresses that were recorded. Inputs that lie where they lay in the call before are
recorded there; the others get a buffer that they are copied into. Results are handed out where they lie. Where one is
still held when the graph runs again, the graph is recorded once more, elsewhere: either two recordings take turns from
then on, or what was held is copied out. So nothing that a caller holds is ever overwritten, whoever calls whom in which
order.
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
from litz.failures import Failures
from litz.host.load import HostFunction
from litz.host.torch_memory import own
from litz.settings import Config

log = logging.getLogger("litz")

WARMUP_CALLS = 2
"""Calls before the first recording: libraries make their workspaces, and saved tensors find their place."""

MAX_SETTLING_CALLS = 4
"""Calls that a graph waits at most, after those, for its arguments to settle."""

MAX_CAPTURES = 6
"""How often a graph is recorded before it is left to run as it is: each recording runs it, and may take memory."""


MAX_LIVE_GRAPHS = 2
"""How many recordings of a graph are kept, for calls that find the results of the last one held."""


class GraphReplay(Protocol):
    """What repeats a call in the memory that was recorded."""

    def wait(self, buffers: Sequence[Tensor]) -> None:
        """Have what is asked of the device from now on wait for all that may still read or write this memory. Comes
        before arguments are copied into the call's own ``buffers``."""

    def run(self) -> None:
        """Repeat the call; what it gives is read from now on. Raises only where nothing is repeated."""


class GraphCapture(Protocol):
    """Records calls of a device."""

    def is_free(self) -> bool:
        """False while somebody else records what is asked of the device: calls are made as they are, as a part of
        that."""

    def capture(self, call: HostFunction, args: list[Any]) -> tuple[GraphReplay, list[Any]]:
        """What repeats a call, and the call's results, which a repetition fills again."""


@dataclass(frozen=True, slots=True)
class _Storage:
    """Memory of results, those at ``places``: ``nbytes`` bytes, that ``known`` tensors knew when it was recorded."""

    pointer: int
    known: int
    places: list[int]
    nbytes: int

    @property
    def is_held(self) -> bool:
        """True where somebody else knows it now."""
        return bool(torch._C._storage_Use_Count(self.pointer) > self.known)


@dataclass(slots=True)
class _Recording:
    """``static`` gives (position, address) of the inputs that are read where they lie; ``copied`` (position, buffer) of
    the others; ``results`` what the recorded call returned; ``starts`` where each argument began in its memory, in
    elements; ``storages`` the results' memory."""

    repetition: GraphReplay
    static: list[tuple[int, int]]
    copied: list[tuple[int, Tensor]]
    results: list[Tensor | None]
    starts: list[int]
    storages: list[_Storage]

    def moved(self, args: Sequence[Any]) -> list[int]:
        """The positions of the arguments that are no longer where they are read."""
        return [k for k, address in self.static if args[k].data_ptr() != address]

    def held(self) -> list[_Storage]:
        """The results' memory that somebody else still knows."""
        return [each for each in self.storages if each.is_held]


class CudaGraphRunner:
    """The graph ``call`` as a function of its list of arguments, which it empties.

    ``peak`` is the number of bytes that a call has for itself at once, its results among them; ``overwritten`` are the
    positions of the arguments that the call changes; ``shared`` gives, by the position of a result that lies in an
    argument's memory, that argument's. ``failures`` are told what cannot be recorded.
    """

    def __init__(
        self,
        call: HostFunction,
        recorder: GraphCapture,
        peak: int,
        overwritten: frozenset[int] = frozenset(),
        shared: dict[int, int] | None = None,
        failures: Failures | None = None,
    ) -> None:
        self._failures = Failures(Config()) if failures is None else failures
        self._call = call
        self._recorder = recorder
        self._peak = peak
        self._overwritten = overwritten
        self._shared = shared or {}
        self._seen: list[int] = []
        self._steady: set[int] = set()
        self._calls = 0
        self._recordings = 0
        self._copied_out: set[int] = set()
        self._kept: list[_Recording] = []  # that which was replayed last at the end
        self._lock = threading.Lock()
        self.obstacle = ""

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Run, record and run, or replay."""
        with self._lock:
            if self.obstacle:
                return self._call(args)
            try:
                found = self._ready(args)
                if found is not None:
                    found.repetition.run()
            except Exception as error:  # whatever is raised by what cannot be recorded
                found = None
                self._give_up(f"recording it failed: {type(error).__name__}: {error}")
                self._failures.report(error, "replay", "a graph is not replayed")
            return self._call(args) if found is None else self._taken(found, args)

    def _ready(self, args: Sequence[Any]) -> _Recording | None:
        """A recording, the arguments in its buffers; None where this call is made as it is."""
        if not self._recorder.is_free() or (not self._recordings and not self._is_settled(args)):
            return None
        found = self._fitting(args)
        if found is None:
            if self._recordings == MAX_CAPTURES:
                self._give_up("its arguments or results are somewhere else in every call")
                log.warning("litz: a graph is not replayed: %s", self.obstacle)
                return None
            self._recordings += 1
            found = self._record(args)
            self._kept.append(found)
        buffers = [buffer for _, buffer in found.copied]
        found.repetition.wait(buffers)
        fill(buffers, [args[k] for k, _ in found.copied])
        return found

    def _give_up(self, why: str) -> None:
        """Run as it is from now on."""
        self.obstacle = why
        self._kept.clear()

    def _is_settled(self, args: Sequence[Any]) -> bool:
        """Note which arguments lie where they lay in the call before. True when they are the same twice in a row, after
        some calls to warm up; a graph whose arguments another one makes waits until that is recorded."""
        places = [each.data_ptr() for each in args]
        steady = {k for k, (a, b) in enumerate(zip(places, self._seen, strict=False)) if a == b}
        settled = steady == self._steady or self._calls == WARMUP_CALLS + MAX_SETTLING_CALLS
        self._seen, self._steady = places, steady
        self._calls += 1
        return settled and self._calls > WARMUP_CALLS

    def _fitting(self, args: Sequence[Any]) -> _Recording | None:
        """A recording that reads the right memory and writes none that somebody holds; what will not be such again is
        forgotten."""
        for recording in self._kept.copy():
            moved = recording.moved(args)
            if moved:
                self._steady.difference_update(moved)
                self._kept.remove(recording)
            elif not recording.held():
                self._kept.remove(recording)
                self._kept.append(recording)
                return recording
        if self._kept and not self._take_turns(self._kept[-1].held()):
            for storage in self._kept[-1].held():
                self._copied_out.update(storage.places)
            # Their memory stays with whoever holds it.
            self._kept.clear()
        return None

    def _take_turns(self, held: Sequence[_Storage]) -> bool:
        """True where another recording beside those that are kept is better than copies of what is held: it takes no
        more memory than the copies and what they are made of."""
        return len(self._kept) < MAX_LIVE_GRAPHS and 2 * sum(each.nbytes for each in held) >= self._peak

    def _record(self, args: Sequence[Any]) -> _Recording:
        static = [(k, each.data_ptr()) for k, each in enumerate(args) if k in self._steady]
        with torch.inference_mode(False):  # they are filled in any mode
            copied = [(k, like(each)) for k, each in enumerate(args) if k not in self._steady]
        fill([buffer for _, buffer in copied], [args[k] for k, _ in copied])
        given = list(args)
        for k, buffer in copied:
            given[k] = buffer
        starts = [each.storage_offset() for each in given]
        repetition, results = self._recorder.capture(self._call, given)
        with torch.inference_mode(False):  # what they are is decided when they are handed out
            results = [None if each is None else own(each) for each in results]
        return _Recording(repetition, static, copied, results, starts, self._storages(results))

    def _storages(self, results: Sequence[Tensor | None]) -> list[_Storage]:
        """The memory of results that lie in no argument's."""
        places: dict[int, list[int]] = {}
        sizes: dict[int, int] = {}
        for k, each in enumerate(results):
            if each is not None and k not in self._shared:
                pointer = each.untyped_storage()._cdata
                places.setdefault(pointer, []).append(k)
                sizes[pointer] = each.untyped_storage().nbytes()
        known = torch._C._storage_Use_Count
        return [_Storage(pointer, known(pointer), found, sizes[pointer]) for pointer, found in places.items()]

    def _taken(self, recording: _Recording, args: list[Any]) -> list[Any]:
        """The results of a call that was repeated."""
        changed = [(args[k], buffer) for k, buffer in recording.copied if k in self._overwritten]
        fill([given for given, _ in changed], [buffer for _, buffer in changed])
        results = self._results(recording, args)
        args.clear()
        return results

    def _results(self, recording: _Recording, args: Sequence[Any]) -> list[Tensor | None]:
        """Tensors of their own over the results' memory, or over copies of it."""
        made = handed_out(recording.results)
        for storage in recording.storages if self._copied_out else ():
            if not self._copied_out.isdisjoint(storage.places):
                found = [
                    each for each in map(recording.results.__getitem__, storage.places) if each is not None
                ]
                for position, copy in zip(storage.places, copied(found), strict=True):
                    made[position] = copy
        for position, source in self._shared.items():
            result, base = recording.results[position], args[source]
            if result is not None:
                made[position] = shifted(result, base, recording.starts[source])
        return made
