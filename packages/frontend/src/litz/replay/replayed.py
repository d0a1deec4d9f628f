"""A compiled graph that is recorded, then replayed, with results that stay what they are.

A replay reads and writes the addresses that were recorded. Inputs that lie where they lay in the call before are
recorded there; the others get a buffer that they are copied into. Results are handed out where they lie; one that is
still held when the graph runs again is recorded anew, elsewhere, and copied out from then on. So nothing that a caller
holds is ever overwritten, whoever calls whom in which order.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from litz.host.load import HostFunction
from litz.host.torch_memory import own

log = logging.getLogger("litz")

WARM_CALLS = 2
"""Calls before the first recording: libraries make their workspaces, and saved tensors find their place."""

PATIENCE = 4
"""Calls that a graph waits at most, after those, for its arguments to settle."""

RECORDINGS = 6
"""How often a graph is recorded before it is left to run as it is: each recording runs it, and may take memory."""


class Recorder(Protocol):
    """Records calls of a device."""

    def record(self, call: HostFunction, args: list[Any]) -> tuple[Callable[[], None], list[Any]]:
        """What repeats a call, and the call's results, which a repetition fills again."""


@dataclass(slots=True)
class _Recording:
    """``static`` gives (position, address) of the inputs that are read where they lie; ``copied`` (position, buffer) of
    the others; ``results`` what the recorded call returned; ``starts`` where each argument began in its memory, in
    elements; ``storages`` the results' memory, how many knew it then, and which results lie there."""

    replay: Callable[[], None]
    static: list[tuple[int, int]]
    copied: list[tuple[int, Tensor]]
    results: list[Tensor | None]
    starts: list[int]
    storages: list[tuple[int, int, list[int]]] = field(default_factory=list)

    def held(self) -> list[int]:
        """The positions of the results whose memory somebody else still knows."""
        count = torch._C._storage_Use_Count
        return [k for storage, known, places in self.storages if count(storage) > known for k in places]


class Replayed:
    """The graph ``call`` as a function of its list of arguments, which it empties.

    ``overwritten`` are the positions of the arguments that the call changes; ``shared`` gives, by the position of a
    result that lies in an argument's memory, that argument's.
    """

    def __init__(
        self,
        call: HostFunction,
        recorder: Recorder,
        overwritten: frozenset[int] = frozenset(),
        shared: dict[int, int] | None = None,
    ) -> None:
        self._call = call
        self._recorder = recorder
        self._overwritten = overwritten
        self._shared = shared or {}
        self._seen: list[int] = []
        self._steady: set[int] = set()
        self._calls = 0
        self._recordings = 0
        self._copied_out: set[int] = set()
        self._recording: _Recording | None = None
        self._lock = threading.Lock()
        self.obstacle = ""

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Run, record and run, or replay."""
        with self._lock:
            if self.obstacle:
                return self._call(args)
            recording = self._recording
            if recording is None:
                if not self._is_settled(args):
                    return self._call(args)
            elif self._fits(recording, args):
                return self._replayed(recording, args)
            if self._recordings == RECORDINGS:
                return self._given_up("its arguments or results are somewhere else in every call", args)
            self._recordings += 1
            try:
                recording = self._recording = self._record(args)
            except Exception as error:  # whatever is raised by what cannot be recorded
                return self._given_up(f"recording it failed: {type(error).__name__}: {error}", args)
            return self._replayed(recording, args)

    def _given_up(self, why: str, args: list[Any]) -> Sequence[Any]:
        """Run as it is, now and from now on."""
        self.obstacle = why
        self._recording = None
        log.warning("litz: a graph is not replayed: %s", why)
        return self._call(args)

    def _is_settled(self, args: Sequence[Any]) -> bool:
        """Note which arguments lie where they lay in the call before. True when they are the same twice in a row, after
        some calls to warm up; a graph whose arguments another one makes waits until that is recorded."""
        places = [each.data_ptr() for each in args]
        steady = {k for k, (a, b) in enumerate(zip(places, self._seen, strict=False)) if a == b}
        settled = steady == self._steady or self._calls == WARM_CALLS + PATIENCE
        self._seen, self._steady = places, steady
        self._calls += 1
        return settled and self._calls > WARM_CALLS

    def _fits(self, recording: _Recording, args: Sequence[Any]) -> bool:
        """True where a replay reads the right memory, and writes none that somebody holds."""
        moved = [k for k, address in recording.static if args[k].data_ptr() != address]
        held = recording.held()
        self._steady.difference_update(moved)
        self._copied_out.update(held)
        return not moved and not held

    def _record(self, args: Sequence[Any]) -> _Recording:
        static = [(k, each.data_ptr()) for k, each in enumerate(args) if k in self._steady]
        with torch.inference_mode(False):  # they are filled in any mode
            copied = [(k, like(each)) for k, each in enumerate(args) if k not in self._steady]
        fill([buffer for _, buffer in copied], [args[k] for k, _ in copied])
        given = list(args)
        for k, buffer in copied:
            given[k] = buffer
        starts = [each.storage_offset() for each in given]
        replay, results = self._recorder.record(self._call, given)
        with torch.inference_mode(False):  # what they are is decided when they are handed out
            results = [None if each is None else own(each) for each in results]
        recording = _Recording(replay, static, copied, results, starts)
        places: dict[int, list[int]] = {}
        for k, each in enumerate(results):
            if each is not None and k not in self._shared:
                places.setdefault(each.untyped_storage()._cdata, []).append(k)
        known = torch._C._storage_Use_Count
        recording.storages = [(storage, known(storage), found) for storage, found in places.items()]
        return recording

    def _replayed(self, recording: _Recording, args: list[Any]) -> list[Any]:
        fill([buffer for _, buffer in recording.copied], [args[k] for k, _ in recording.copied])
        recording.replay()
        changed = [(args[k], buffer) for k, buffer in recording.copied if k in self._overwritten]
        fill([given for given, _ in changed], [buffer for _, buffer in changed])
        results = self._results(recording, args)
        args.clear()
        return results

    def _results(self, recording: _Recording, args: Sequence[Any]) -> list[Tensor | None]:
        """Tensors of their own over the results' memory, or over copies of it."""
        made = handed_out(recording.results)
        for _, _, places in recording.storages if self._copied_out else ():
            if not self._copied_out.isdisjoint(places):
                together = [each for each in map(recording.results.__getitem__, places) if each is not None]
                for position, copy in zip(places, copied(together), strict=True):
                    made[position] = copy
        for position, source in self._shared.items():
            result, base = recording.results[position], args[source]
            if result is not None:
                made[position] = _shifted(result, base, recording.starts[source])
        return made


def handed_out(results: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Other tensors over the memory of results, which autograd does not know for views.

    A graph of training returns hundreds of them, and ``data`` is the quickest way to make one. In inference mode the
    others make inference tensors, as eager does.
    """
    if torch.is_inference_mode_enabled():
        return [None if each is None else own(each) for each in results]
    return [None if each is None else each.data for each in results]


def _shifted(result: Tensor, base: Tensor, start: int) -> Tensor:
    """A result in the memory of ``base``, that was recorded when ``base`` began at its element ``start``."""
    apart = (base.storage_offset() - start) * base.itemsize
    offset = result.storage_offset() + apart // result.itemsize
    if result.dtype == base.dtype:
        return base.as_strided(result.shape, result.stride(), offset)
    return _over(base.untyped_storage(), result, offset)


def copied(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies of tensors that lie in one storage, which lie in one as they do."""
    if len(tensors) == 1 and tensors[0].is_contiguous() and not tensors[0].is_conj():
        return [tensors[0].clone()]
    if len(tensors) == 1:
        made = like(tensors[0])
        fill([made], tensors)
        return [made]
    first = tensors[0]
    memory = torch.empty(0, dtype=torch.uint8, device=first.device).set_(first.untyped_storage()).clone()
    return [_over(memory.untyped_storage(), each, each.storage_offset()) for each in tensors]


def _over(storage: torch.UntypedStorage, tensor: Tensor, offset: int | torch.SymInt) -> Tensor:
    """A tensor like another one over ``storage``, from its element ``offset`` on."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    made.set_(storage, offset, tensor.shape, tensor.stride())
    if tensor.is_conj():
        torch._C._set_conj(made, True)
    return made


def like(tensor: Tensor) -> Tensor:
    """Memory for a tensor of the same sizes and strides; what repeats in memory repeats there."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def compact(tensor: Tensor) -> Tensor:
    """The elements of a tensor that have a place of their own: those that repeat along a dimension once, and all that
    lies between the first and the last where dimensions overlap otherwise."""
    if tensor.is_contiguous():
        return tensor
    sizes = [
        1 if step == 0 and size else size for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    reach = 1
    for step, size in sorted(zip(tensor.stride(), sizes, strict=True)):
        if size > 1 and step < reach:
            ends = [(n - 1) * stride for n, stride in zip(sizes, tensor.stride(), strict=True)]
            return tensor.as_strided((1 + sum(ends),), (1,))
        reach += (size - 1) * step
    return tensor if 0 not in tensor.stride() else tensor.as_strided(sizes, tensor.stride())


def fill(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy elements between tensors of the same sizes and strides, pair by pair."""
    if any(each.is_conj() for each in targets):
        for target, source in zip(targets, sources, strict=True):
            compact(target).copy_(compact(source))
    elif targets:
        torch._foreach_copy_(list(map(compact, targets)), list(map(compact, sources)))
