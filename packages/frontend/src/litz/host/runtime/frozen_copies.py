"""Copies of a GPU's parameters, kept from call to call and made again in stream order where a parameter changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

from litz.devices import gpu
from litz.host.program import FrozenCopy
from litz.host.runtime.frozen_results import MAX_ENTRIES, NOT_FROZEN, StoredResults, compared_positions
from litz_ir.target import FailureCallback, MemoryCopy

_WORD = 4
"""Bytes of a word that is compared."""

Copies = Callable[[Sequence[int], Sequence[MemoryCopy]], Callable[[], None] | None]
"""``CopyingModule.copies`` of the device's module."""


class FrozenCopies:
    """Copies of parameters on a GPU, which a function makes, and all of which are made again where a parameter changed.

    Another object, another address and a higher version counter are seen by the host, which calls the function. What
    the host cannot see, such as a write through ``.data``, the device finds in the elements that
    :func:`compared_positions` names, before each use: the copies are then made again in place. Nothing waits for the
    device. With ``frozen`` only other objects count as a change. The copies belong to the stream of the call that made
    them. A call on another stream, or one that a CUDA graph captures, calls the function and stores nothing; the second
    of two successive calls on the same other stream takes the copies over, as after a warm-up on a side stream.
    """

    def __init__(
        self,
        function: Callable[[list[Any]], Sequence[Any]],
        copies: Sequence[FrozenCopy],
        module: Copies,
        report: FailureCallback,
        frozen: bool = False,
    ) -> None:
        self._function = function
        self._copies = copies
        self._module = module
        self._report = report
        self._frozen = frozen
        self._entries: dict[tuple[int, ...], _Entry] = {}

    def computed_by(self, function: Callable[[list[Any]], Sequence[Any]]) -> FrozenCopies:
        """Return these copies for another form of the same function, which makes them where they are missing."""
        made = FrozenCopies(function, self._copies, self._module, self._report, self._frozen)
        made._entries = self._entries
        return made

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Return the results for ``args``, which is emptied."""
        if gpu.is_current_stream_capturing():
            return self._function(args)
        key = tuple(map(id, args))
        stream = gpu.current_stream(args[0].device).cuda_stream
        entry = self._entries.get(key)
        if entry is not None and not entry.is_used_on(stream):
            return self._function(args)
        try:
            if entry is not None and entry.stream == stream and (self._frozen or entry.stored.holds(args)):
                entry.again()
                args.clear()
                return entry.stored.results
            made = self._made(args, key, stream)
        except Exception as error:
            self._entries.pop(key, None)
            self._report(error, NOT_FROZEN)
            return self._function(args)
        if made is None:
            return self._function(args)
        args.clear()
        return made.stored.results

    def _made(self, args: Sequence[Any], key: tuple[int, ...], stream: int) -> _Entry | None:
        """Make copies and keep them; ``None`` where the device's module cannot."""
        stored = StoredResults(args, lambda: self._entries.pop(key, None), lambda _: _always)
        if not stored.versioned and not self._frozen:
            return None
        stored.results = self._function(list(args))
        again = (
            _nothing if self._frozen else self._module(_words(args), self._described(args, stored.results))
        )
        if again is None:
            return None
        again()
        self._entries[key] = entry = _Entry(stored, stream, again)
        while len(self._entries) > MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        return entry

    def _described(self, args: Sequence[Any], results: Sequence[Any]) -> list[MemoryCopy]:
        """Return the memory of all copies."""
        found: list[MemoryCopy] = []
        for each in self._copies:
            source, target = args[each.argument], results[each.result]
            start, end = each.starts
            found.append(
                MemoryCopy(
                    source.data_ptr() + start * source.element_size(),
                    target.data_ptr() + end * target.element_size(),
                    each.dtypes,
                    each.sizes,
                    each.strides,
                )
            )
        return found


class _Entry:
    """Copies, the stream that they belong to, and the function that makes them again where that is needed."""

    def __init__(self, stored: StoredResults, stream: int, again: Callable[[], None]) -> None:
        self.stored = stored
        self.stream = stream
        self.again = again
        self._other: int | None = None

    def is_used_on(self, stream: int) -> bool:
        """Report whether a call on a stream uses the copies, or makes new ones in their place."""
        before, self._other = self._other, None if stream == self.stream else stream
        return stream in (self.stream, before)


def _words(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return the addresses of the words that are compared, each a multiple of four."""
    found: list[int] = []
    for tensor in tensors:
        addresses = tensor.data_ptr() + compared_positions(tensor) * tensor.element_size()
        found.extend(numpy.unique(addresses // _WORD * _WORD).tolist())
    return found


def _always() -> bool:
    return True


def _nothing() -> None:
    return None
