"""Results of frozen regions, reused from call to call while the parameters they depend on do not change."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any

import numpy
import torch

from litz_ir.target import FailureCallback, MemoryPart, raise_failure

MAX_ENTRIES = 256
"""Most sets of tensors with stored results: a block compiled once may run with many sets of weights."""

_WHOLE = 4096
"""Largest tensor that is compared as a whole in each call, in bytes: biases, norms and their statistics."""

_LEAST = 1024
"""Elements of a larger tensor that are compared, if it has as many rows or columns; one in :data:`_SHARE` if more."""

_SHARE = 64
"""Divisor of a tensor's elements for the share that is compared."""

_is_private = methodcaller("resizable")
"""Report whether only torch refers to a storage: ``numpy()`` makes the storages it exports non-resizable."""

_version = attrgetter("_version")
"""Return the version counter of a tensor."""

_address = methodcaller("data_ptr")
"""Return the address of a tensor's first element."""

Comparison = Callable[[Sequence[MemoryPart]], Callable[[], bool] | None]
"""Maker of functions that report whether memory has the bytes that were expected; of ``None`` where it cannot."""

_MAPS = Path("/proc/self/maps")
"""File of Linux that lists the mappings of this process."""

NOT_FROZEN = "the frozen region is computed in every call"
"""Consequence of a failure to compare tensors, in log lines."""


class FrozenResults:
    """A pure function of tensors that seldom change, called again only when one of them did.

    A tensor has changed when it is another object, its memory moved, its version counter increased (every write that
    autograd sees, those of ``load_state_dict`` and optimisers included), NumPy got access to its memory, or compared
    elements differ (a write through ``.data`` does not change the version). All elements are compared where NumPy or
    another process has access to the memory, or the tensor is small; else one element of each row, column and filter
    tap. Tensors made under ``torch.inference_mode`` have no version, and no results are stored for them. Results
    live no longer than their tensors. With ``frozen`` only other objects count as a change. Where tensors cannot be
    compared, ``report`` receives the failure and the function runs.
    """

    def __init__(
        self,
        function: Callable[[list[Any]], Sequence[Any]],
        frozen: bool = False,
        report: FailureCallback = raise_failure,
        compare: Comparison | None = None,
    ) -> None:
        """``compare`` compares the elements, by default NumPy."""
        self._function = function
        self._frozen = frozen
        self._report = report
        self._compare = _compared_by_numpy if compare is None else compare
        self._entries: dict[tuple[int, ...], StoredResults] = {}

    def computed_by(self, function: Callable[[list[Any]], Sequence[Any]]) -> FrozenResults:
        """Return these stored results for another form of the same function, which computes them where they changed."""
        made = FrozenResults(function, self._frozen, self._report, self._compare)
        made._entries = self._entries
        return made

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Return the results for ``args``, which is emptied."""
        key = tuple(map(id, args))
        entry = self._entries.get(key)
        try:
            if entry is not None and (self._frozen or entry.holds(args)):
                args.clear()
                return entry.results
            compare = None if self._frozen else self._compare
            entry = StoredResults(args, lambda: self._entries.pop(key, None), compare)
        except Exception as error:
            self._report(error, NOT_FROZEN)
            return self._function(args)
        entry.results = self._function(args)
        self._entries[key] = entry
        while len(self._entries) > MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        args.clear()
        return entry.results


class StoredResults:
    """Results, and the state of their tensors when they were computed."""

    def __init__(
        self, tensors: Sequence[torch.Tensor], forget: Callable[[], object], compare: Comparison | None
    ) -> None:
        """``forget`` is called when a tensor dies; without ``compare`` nothing is checked."""
        self.results: Sequence[Any] = ()
        self._references = [weakref.ref(tensor, lambda _: forget()) for tensor in tensors]
        self._versions = [None if tensor.is_inference() else tensor._version for tensor in tensors]
        self.versioned = None not in self._versions
        if compare is None or not self.versioned:
            return
        self._addresses = list(map(_address, tensors))
        self._storages = [tensor.untyped_storage() for tensor in tensors]
        self._private = list(map(_is_private, self._storages))
        shared = list(map(_is_shared, self._storages))
        # Weights that ``safetensors`` loads are in a mapped file, private to this process.
        files = _private_files() if any(shared) else []
        whole = [each and not _is_in(files, at) for each, at in zip(shared, self._addresses, strict=True)]
        found = [_compared_part(tensor, whole=each) for tensor, each in zip(tensors, whole, strict=True)]
        parts = [each for each in found if each is not None]
        self._unchanged = compare(parts) or _compared_by_numpy(parts)

    def holds(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Report whether the tensors, the same objects, are unchanged."""
        return (
            self.versioned
            and list(map(_version, tensors)) == self._versions
            and list(map(_address, tensors)) == self._addresses
            and list(map(_is_private, self._storages)) == self._private
            and self._unchanged()
        )


def _compared_part(tensor: torch.Tensor, *, whole: bool) -> MemoryPart | None:
    """Return the compared memory of a CPU tensor; ``None`` where there is none."""
    if tensor.numel() == 0 or tensor.device.type != "cpu":
        return None
    size, width = tensor.numel(), tensor.element_size()
    span = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    address, word = tensor.data_ptr(), min(8, width)
    positions = None
    if not whole and size * width > _WHOLE:
        positions = _sampled_positions(tensor)
    elif span > size:
        positions = _all_positions(tensor)
    if positions is None:
        return MemoryPart(address, word, None, ctypes.string_at(address, span * width))
    if width > word:
        positions = numpy.concatenate([2 * positions, 2 * positions + 1])
    return MemoryPart(address, word, positions.tobytes(), _taken(address, word, positions))


def compared_positions(tensor: torch.Tensor) -> Any:
    """Return the positions that are compared of a tensor, in elements from the first: all of a small one."""
    small = tensor.numel() * tensor.element_size() <= _WHOLE
    return _all_positions(tensor) if small else _sampled_positions(tensor)


def _taken(address: int, width: int, positions: Any) -> bytes:
    """Return elements of memory."""
    count = int(positions.max()) + 1
    memory = (ctypes.c_char * (count * width)).from_address(address)
    taken: bytes = numpy.frombuffer(memoryview(memory), f"u{width}").take(positions).tobytes()
    return taken


def _compared_by_numpy(parts: Sequence[MemoryPart]) -> Callable[[], bool]:
    """Return a function that reports whether all parts have the expected bytes."""
    return lambda: all(_has_expected(part) for part in parts)


def _has_expected(part: MemoryPart) -> bool:
    """Report whether a part has the expected bytes."""
    if part.positions is None:
        return ctypes.string_at(part.address, len(part.expected)) == part.expected
    positions = numpy.frombuffer(part.positions, numpy.int64)
    return _taken(part.address, part.width, positions) == part.expected


def _all_positions(tensor: torch.Tensor) -> Any:
    """Return the positions of all elements of a tensor."""
    found = numpy.zeros(1, numpy.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        found = numpy.add.outer(found, numpy.arange(size) * stride).ravel()
    return found


def _sampled_positions(tensor: torch.Tensor) -> Any:
    """Return the compared positions of a tensor, in elements: one in each row, column and filter tap, up to the
    limit."""
    sizes = [*tensor.shape[:2], *([math.prod(tensor.shape[2:])] if tensor.dim() > 2 else [])]
    count, limit = max(sizes), max(_LEAST, tensor.numel() // _SHARE)
    points = (
        numpy.arange(count) if count <= limit else numpy.linspace(0, count - 1, limit).astype(numpy.int64)
    )
    indices = [points % size for size in sizes[:2]]
    if tensor.dim() > 2:
        indices += numpy.unravel_index(points % sizes[2], tensor.shape[2:])
    return sum(each * stride for each, stride in zip(indices, tensor.stride(), strict=True))


def _is_shared(storage: torch.UntypedStorage) -> bool:
    """Report whether NumPy, a mapped file or another process may have access to the memory."""
    return storage.is_shared() or not storage.resizable()


def _private_files() -> list[range]:
    """Return the address ranges of files mapped copy-on-write; none where these are unknown."""
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
    """Report whether an address is in one of the ranges."""
    return any(address in each for each in ranges)
