"""Samples that the database has for no other mode: inputs that an operator refuses, and inputs without elements."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from opinfo.entries import DTYPES, ENTRIES, Unit
from opinfo.sample import Sample, sample_of

_Choice = Callable[[torch.Tensor, int], bool]
"""Function that chooses the axes of tensors, by position, whose size becomes zero."""


def error_samples(unit: Unit) -> Iterator[Sample]:
    """Yield the entry's invalid inputs, and one sample in each dtype that it does not support on the device."""
    entry = ENTRIES[unit.entry]
    if entry.error_inputs_func is not None:
        for each in entry.error_inputs(unit.device):
            yield sample_of(each.sample_input)
    supported = entry.supported_dtypes(unit.device)
    for dtype in DTYPES.values():
        if dtype not in supported:
            with contextlib.suppress(Exception):  # the database makes no samples of some dtypes
                yield from map(sample_of, itertools.islice(entry.sample_inputs(unit.device, dtype), 1))


def empty_samples(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield samples of which axes have no elements: every axis, alone, with those of the same size at the same
    position of other arguments, and with all of the same size."""
    for sample in samples:
        described: set[str] = set()
        for chosen in _choices(sample.tensors()):
            made = _emptied(sample, chosen)
            text = made.describe()
            if text not in described and any(each.numel() == 0 for each in made.tensors()):
                described.add(text)
                yield made


def _choices(tensors: list[torch.Tensor]) -> Iterator[_Choice]:
    """Yield the choices of axes of some arguments."""
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape):

            def like(other: torch.Tensor, k: int, axis: int = axis, like: torch.Tensor = tensor) -> bool:
                return other.dim() == like.dim() and k == axis and other.shape[k] == like.shape[k]

            def equal(other: torch.Tensor, k: int, size: int = size) -> bool:
                return other.shape[k] == size

            def alone(other: torch.Tensor, k: int, axis: int = axis, tensor: torch.Tensor = tensor) -> bool:
                return other is tensor and k == axis

            yield from (like, equal, alone)


def _emptied(sample: Sample, chosen: _Choice) -> Sample:
    """Return a sample with axes of size zero, of zeros where a tensor has such axes."""

    def emptied(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided:
            return leaf
        shape = [0 if chosen(leaf, axis) else size for axis, size in enumerate(leaf.shape)]
        if shape == list(leaf.shape):
            return leaf
        return torch.zeros(shape, dtype=leaf.dtype, device=leaf.device).requires_grad_(leaf.requires_grad)

    args, kwargs = pytree.tree_map(emptied, (sample.args, sample.kwargs))
    return Sample(args, kwargs, sample.differentiable)
