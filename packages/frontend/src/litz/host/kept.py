"""Results that are kept from call to call, as long as the tensors they were computed from stay as they are."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch

ENTRIES = 256
"""The sets of tensors that results are kept for: a block that is compiled once may run with many sets of weights."""

SAMPLES = 4
"""Places of each tensor that are compared at every call: a write through ``.data`` leaves the version as it was. A
vector has one; each place is likely far from any other, and costs a trip to memory."""

_read = attrgetter("value")

_WORDS = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}


class Kept:
    """A pure function of tensors that seldom change, run again only when one of them did.

    A tensor has changed when it is another object, its memory moved, its version counter was raised (every write
    that autograd sees, ``load_state_dict`` and optimisers among them), or one of :data:`SAMPLES` places reads
    otherwise (a write through ``.data`` to all of it). Tensors made under ``torch.inference_mode`` have no version, and
    nothing is kept for them. Results live no longer than their tensors. Where they are ``frozen``, only other objects
    count as a change.
    """

    def __init__(self, function: Callable[[list[Any]], Sequence[Any]], frozen: bool = False) -> None:
        self._function = function
        self._frozen = frozen
        self._entries: dict[tuple[int, ...], _Entry] = {}

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """The results for ``args``, which is emptied."""
        key = tuple(map(id, args))
        entry = self._entries.get(key)
        if entry is None or not (self._frozen or entry.holds(args)):
            entry = _Entry(args, lambda: self._entries.pop(key, None))
            entry.results = self._function(args)
            self._entries[key] = entry
            while len(self._entries) > ENTRIES:
                del self._entries[next(iter(self._entries))]
        args.clear()
        return entry.results


class _Entry:
    """Results, and how their tensors were when they were computed."""

    def __init__(self, tensors: Sequence[torch.Tensor], forget: Callable[[], object]) -> None:
        self.results: Sequence[Any] = ()
        self._references = [weakref.ref(tensor, lambda _: forget()) for tensor in tensors]
        self._versions = [None if tensor.is_inference() else tensor._version for tensor in tensors]
        self._versioned = None not in self._versions
        self._addresses = [tensor.data_ptr() for tensor in tensors]
        self._places = [place for tensor in tensors for place in _places(tensor)]
        self._samples = list(map(_read, self._places))

    def holds(self, tensors: Sequence[torch.Tensor]) -> bool:
        """True when nothing tells the tensors, which are the same objects, from what they were."""
        if not self._versioned or [tensor._version for tensor in tensors] != self._versions:
            return False
        if [tensor.data_ptr() for tensor in tensors] != self._addresses:
            return False
        return list(map(_read, self._places)) == self._samples


def _places(tensor: torch.Tensor) -> list[Any]:
    """Some elements of a tensor on the CPU as words in memory, from its first to its last."""
    if tensor.numel() == 0 or tensor.device.type != "cpu":
        return []
    word, width = _WORDS[min(8, tensor.element_size())], tensor.element_size()
    steps = range(SAMPLES if tensor.dim() > 1 else 1)
    geometry = tuple(zip(tensor.shape, tensor.stride(), strict=True))
    flat = (sum(k * (size - 1) // (SAMPLES - 1) * stride for size, stride in geometry) for k in steps)
    return [word.from_address(tensor.data_ptr() + place * width) for place in dict.fromkeys(flat)]
