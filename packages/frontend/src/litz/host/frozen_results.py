"""Results that are kept from call to call, as long as the tensors they were computed from stay as they are."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy
import torch

from litz_ir.target import FailureCallback, raise_failure

ENTRIES = 256
"""The sets of tensors that results are kept for: a block that is compiled once may run with many sets of weights."""

WHOLE = 4096
"""The bytes up to which a tensor is compared whole at every call: biases, norms and their statistics."""

LEAST = 1024
"""The elements of a larger tensor that are compared where it has so many rows or columns; one in :data:`SHARE` if that
is more."""

SHARE = 64

_is_private = methodcaller("resizable")
"""Whether torch alone knows a storage: ``numpy()`` marks what it hands out as of fixed size, for good."""

_MAPS = Path("/proc/self/maps")

NOT_FROZEN = "what depends on parameters alone is computed at every call"
"""The report of tensors that cannot be looked at."""


class FrozenResults:
    """A pure function of tensors that seldom change, run again only when one of them did.

    A tensor has changed when it is another object, its memory moved, its version counter was raised (every write
    that autograd sees, ``load_state_dict`` and optimisers among them), NumPy was handed its memory, or what is looked
    at of its elements reads otherwise (a write through ``.data``, which leaves the version as it was). Looked at is
    everything where NumPy or another process has the memory too or there is little of it, else one element of each row,
    column and tap of a window. Tensors made under ``torch.inference_mode`` have no version, and nothing is kept for
    them. Results live no longer than their tensors. Where they are ``frozen``, only other objects count as a change.
    Where tensors cannot be looked at, ``told`` hears of it and the function runs.
    """

    def __init__(
        self,
        function: Callable[[list[Any]], Sequence[Any]],
        frozen: bool = False,
        told: FailureCallback = raise_failure,
    ) -> None:
        self._function = function
        self._frozen = frozen
        self._told = told
        self._entries: dict[tuple[int, ...], _Entry] = {}

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """The results for ``args``, which is emptied."""
        key = tuple(map(id, args))
        entry = self._entries.get(key)
        try:
            if entry is not None and (self._frozen or entry.holds(args)):
                args.clear()
                return entry.results
            entry = _Entry(args, lambda: self._entries.pop(key, None), frozen=self._frozen)
        except Exception as error:
            self._told(error, NOT_FROZEN)
            return self._function(args)
        entry.results = self._function(args)
        self._entries[key] = entry
        while len(self._entries) > ENTRIES:
            del self._entries[next(iter(self._entries))]
        args.clear()
        return entry.results


class _Entry:
    """Results, and how their tensors were when they were computed."""

    def __init__(
        self, tensors: Sequence[torch.Tensor], forget: Callable[[], object], *, frozen: bool
    ) -> None:
        self.results: Sequence[Any] = ()
        self._references = [weakref.ref(tensor, lambda _: forget()) for tensor in tensors]
        self._versions = [None if tensor.is_inference() else tensor._version for tensor in tensors]
        self._versioned = None not in self._versions
        if frozen or not self._versioned:
            return
        self._addresses = [tensor.data_ptr() for tensor in tensors]
        self._storages = [tensor.untyped_storage() for tensor in tensors]
        self._private = list(map(_is_private, self._storages))
        shared = list(map(_is_shared, self._storages))
        # Weights that ``safetensors`` loads are in a mapped file: those nobody else has.
        files = _private_files() if any(shared) else []
        whole = [each and not _is_in(files, at) for each, at in zip(shared, self._addresses, strict=True)]
        read = [_reader(tensor, whole=each) for tensor, each in zip(tensors, whole, strict=True)]
        self._readers = [each for each in read if each is not None]
        self._seen = [each() for each in self._readers]

    def holds(self, tensors: Sequence[torch.Tensor]) -> bool:
        """True when nothing tells the tensors, which are the same objects, from what they were."""
        if not self._versioned or [tensor._version for tensor in tensors] != self._versions:
            return False
        if [tensor.data_ptr() for tensor in tensors] != self._addresses:
            return False
        if list(map(_is_private, self._storages)) != self._private:
            return False
        return [read() for read in self._readers] == self._seen


def _reader(tensor: torch.Tensor, *, whole: bool) -> Callable[[], bytes] | None:
    """Make what reads the bytes of a tensor on the CPU that are compared: all of them, or those of some elements."""
    if tensor.numel() == 0 or tensor.device.type != "cpu":
        return None
    size, width = tensor.numel(), tensor.element_size()
    word = min(8, width)
    shape, strides = (*tensor.shape, width // word), (*(s * width for s in tensor.stride()), word)
    span = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + word
    memory = numpy.frombuffer((ctypes.c_char * span).from_address(tensor.data_ptr()), dtype=numpy.uint8)
    elements = numpy.ndarray(shape, f"u{word}", memory, 0, strides)
    if whole or size * width <= WHOLE:
        return elements.tobytes
    flat = memory[: span // word * word].view(f"u{word}")
    places = _places(tensor) * (width // word)
    if width > word:
        places = numpy.concatenate([places, places + 1])
    take = flat.take
    return lambda: take(places).tobytes()


def _places(tensor: torch.Tensor) -> Any:
    """Compute where some elements are, counted in elements from the first: one in each row and column, and at each tap
    of a window; or as many as may be looked at."""
    sizes = [*tensor.shape[:2], *([math.prod(tensor.shape[2:])] if tensor.dim() > 2 else [])]
    count, most = max(sizes), max(LEAST, tensor.numel() // SHARE)
    steps = numpy.arange(count) if count <= most else numpy.linspace(0, count - 1, most).astype(numpy.int64)
    indices = [steps % size for size in sizes[:2]]
    if tensor.dim() > 2:
        indices += numpy.unravel_index(steps % sizes[2], tensor.shape[2:])
    return sum(each * stride for each, stride in zip(indices, tensor.stride(), strict=True))


def _is_shared(storage: torch.UntypedStorage) -> bool:
    """True where others than torch may have the memory too: NumPy, a mapped file, another process."""
    return storage.is_shared() or not storage.resizable()


def _private_files() -> list[range]:
    """The addresses of mapped files whose pages are copied when they are written; none where nobody can say."""
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found: list[range] = []
    for line in lines:
        bounds, rights, _, _, _, name = [*line.split(maxsplit=5), ""][:6]
        if rights.endswith("p") and name.startswith("/"):
            first, _, end = bounds.partition("-")
            found.append(range(int(first, 16), int(end, 16)))
    return found


def _is_in(ranges: Sequence[range], address: int) -> bool:
    return any(address in each for each in ranges)
