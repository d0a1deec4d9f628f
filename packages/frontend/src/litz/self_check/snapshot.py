"""Snapshots: a call's arguments and the states of random generators before it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RandomState:
    """States of torch's random generators."""

    cpu: Tensor
    """State of the CPU's generator."""

    gpus: tuple[tuple[torch.device, Tensor], ...]
    """GPUs, or other accelerators, and the states of their generators."""

    @staticmethod
    def now(gpus: Iterable[torch.device]) -> RandomState:
        """Return the present states, those of ``gpus`` by torch's module of each."""
        states = ((each, torch.get_device_module(each).get_rng_state(each)) for each in gpus)
        return RandomState(torch.get_rng_state(), tuple(states))

    def restore(self) -> None:
        """Restore the states."""
        torch.set_rng_state(self.cpu)
        for device, state in self.gpus:
            torch.get_device_module(device).set_rng_state(state, device)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at the start of a call."""

    args: Sequence[Any]
    """Copies of its arguments."""

    state: RandomState
    """States of the random generators."""

    @staticmethod
    def of(args: Sequence[Any], gpus: Iterable[torch.device]) -> Snapshot:
        """Return the snapshot of a call that starts now, on these ``gpus``."""
        return Snapshot(copied(args), RandomState.now(gpus))

    def restore(self, args: Sequence[Any]) -> None:
        """Restore the elements of the arguments, and the states of the generators."""
        tensors = [(own, old) for own, old in zip(args, self.args, strict=True) if isinstance(own, Tensor)]
        versioned = tuple(own for own, _ in tensors if not own.is_inference())
        # In the caller's inference mode, since inference tensors cannot be written outside it.
        with torch.no_grad(), torch.autograd.grad_mode._unsafe_preserve_version_counter(versioned):
            for own, old in tensors:
                if not torch._debug_has_internal_overlap(own):
                    own.copy_(old)
        self.state.restore()


def can_be_copied(args: Sequence[Any]) -> bool:
    """Report whether arguments are numbers and strided tensors of torch's own classes."""
    plain = (Tensor, torch.nn.Parameter)
    return all(
        type(each) in plain and each.layout == torch.strided and not each.is_meta
        if isinstance(each, Tensor)
        else each is None or isinstance(each, bool | int | float | complex)
        for each in args
    )


def copied(args: Sequence[Any]) -> list[Any]:
    """Return copies of the arguments, which overlap each other as these do."""
    memory: dict[int, torch.UntypedStorage] = {}
    with undisturbed():
        return [_copied(each, memory) if isinstance(each, Tensor) else each for each in args]


def copied_leaves(args: Sequence[Any]) -> list[Any]:
    """Return copies of the arguments that require gradients where these do, and overlap each other as these do.

    Where one is of a class that has no copy of the same layout, each is cloned by itself.
    """
    if can_be_copied(args):
        copies = copied(args)
    else:
        copies = [each.detach().clone() if isinstance(each, Tensor) else each for each in args]
    for old, new in zip(args, copies, strict=True):
        if isinstance(old, Tensor) and old.requires_grad:
            new.requires_grad_()
    return copies


def _copied(tensor: Tensor, memory: dict[int, torch.UntypedStorage]) -> Tensor:
    """Return a copy of a tensor, in a copy of its storage."""
    if tensor.is_conj() or tensor.is_neg():
        # Kernels resolve these bits; operations on complex parts refuse them.
        return tensor.detach().resolve_conj().resolve_neg().clone()
    storage = tensor.untyped_storage()
    if storage._cdata not in memory:
        memory[storage._cdata] = storage.clone()
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(memory[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Run ATen as a compiled graph runs: without gradients, autocast and modes of the caller."""
    modes = torch.utils._python_dispatch._disable_current_modes()
    with torch.inference_mode(False), torch.no_grad(), modes, torch._C._DisableAutocast():
        yield
