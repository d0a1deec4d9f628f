"""Sample inputs of an entry for each mode."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch

from opinfo.entries import DTYPES, ENTRIES, Unit
from opinfo.exceptions import ENDS_PROCESS
from opinfo.invalid import empty_samples, error_samples
from opinfo.sample import Sample, sample_of

Mode = Literal["forward", "inplace", "gradient", "dynamic", "errors", "empty", "empty_dynamic"]
MODES: tuple[Mode, ...] = ("forward", "inplace", "gradient", "dynamic", "errors", "empty", "empty_dynamic")
DIFFERENTIABLE: tuple[Mode, ...] = ("gradient", "empty", "empty_dynamic")
"""Modes with gradients, where the entry has some."""
DYNAMIC: tuple[Mode, ...] = ("dynamic", "empty_dynamic")
"""Modes with symbolic sizes."""

EMPTIED = 3
"""Samples of an entry whose axes become empty."""

SEED = 20


WIDER = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}


def widened(leaf: Any) -> Any:
    """Return a leaf in double precision; integers and anything else but dtypes as they are."""
    if isinstance(leaf, torch.dtype):
        return WIDER.get(leaf, leaf)
    if not isinstance(leaf, torch.Tensor):
        return leaf
    copy = leaf.detach().clone()
    return copy.to(WIDER.get(leaf.dtype, leaf.dtype)).requires_grad_(leaf.requires_grad)


def seed() -> None:
    """Seed every generator that samples and operators draw from."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)


def modes_of(unit: Unit) -> tuple[Mode, ...]:
    """Return the ways in which an entry is run for a dtype: only f32 has others than the plain one."""
    if unit.dtype != "f32":
        return ("forward",)
    entry = ENTRIES[unit.entry]
    modes: list[Mode] = ["forward"]
    if entry.inplace_variant is not None:
        modes.append("inplace")
    if _has_gradients(unit):
        modes.append("gradient")
    modes += ["dynamic", "errors"]
    return tuple(modes) if unit.entry in ENDS_PROCESS else (*modes, "empty", "empty_dynamic")


def _has_gradients(unit: Unit) -> bool:
    """Report whether an entry has gradients in f32."""
    entry = ENTRIES[unit.entry]
    has: bool = entry.supports_autograd and torch.float32 in entry.supported_backward_dtypes(unit.device)
    return has


def samples_of(unit: Unit, mode: Mode, limit: int | None) -> list[Sample]:
    """Return the entry's samples for a dtype, at most `limit`; the same ones whenever asked."""
    entry = ENTRIES[unit.entry]
    seed()
    if mode == "errors":
        return list(itertools.islice(error_samples(unit), limit))
    differentiable = mode in DIFFERENTIABLE and _has_gradients(unit)
    made = entry.sample_inputs(unit.device, DTYPES[unit.dtype], requires_grad=differentiable)
    if mode == "inplace":
        made = (sample for sample in made if not sample.broadcasts_input)
    samples: Iterator[Sample] = map(sample_of, made)
    if mode in ("empty", "empty_dynamic"):
        samples = empty_samples(itertools.islice(samples, EMPTIED))
    return list(itertools.islice(samples, limit))
