"""Snapshots: the arguments of a call and the states of the random generators before it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RandomState:
    """The state of torch's random generators: the CPU's and those of some GPUs."""

    cpu: Tensor
    gpus: tuple[tuple[int, Tensor], ...]

    @staticmethod
    def now(gpus: Iterable[int]) -> RandomState:
        """The current state; ``gpus`` are the ordinals of those that matter."""
        return RandomState(torch.get_rng_state(), tuple((k, torch.cuda.get_rng_state(k)) for k in gpus))

    def restore(self) -> None:
        """Make it the current state again."""
        torch.set_rng_state(self.cpu)
        for ordinal, state in self.gpus:
            torch.cuda.set_rng_state(state, ordinal)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A call as it began: copies of its arguments, and the state of the random generators."""

    args: Sequence[Any]
    state: RandomState

    @staticmethod
    def of(args: Sequence[Any], gpus: Iterable[int]) -> Snapshot:
        """The snapshot of a call that begins now, on these GPUs."""
        return Snapshot(copied(args), RandomState.now(gpus))

    def restore(self, args: Sequence[Any]) -> None:
        """Give the arguments the elements that they had, and the generators their state."""
        tensors = [(own, old) for own, old in zip(args, self.args, strict=True) if isinstance(own, Tensor)]
        kept = tuple(own for own, _ in tensors if not own.is_inference())
        # In the caller's mode: nothing else may write to tensors of inference mode.
        with torch.no_grad(), torch.autograd.grad_mode._unsafe_preserve_version_counter(kept):
            for own, old in tensors:
                if not torch._debug_has_internal_overlap(own):
                    own.copy_(old)
        self.state.restore()


def can_be_copied(args: Sequence[Any]) -> bool:
    """True for numbers and for tensors whose memory is all that they are."""
    plain = (Tensor, torch.nn.Parameter)
    return all(
        type(each) in plain and each.layout == torch.strided and not each.is_meta
        if isinstance(each, Tensor)
        else each is None or isinstance(each, bool | int | float | complex)
        for each in args
    )


def copied(args: Sequence[Any]) -> list[Any]:
    """The arguments in memory of their own, in which they overlap as they do in theirs."""
    memory: dict[int, torch.UntypedStorage] = {}
    with undisturbed():
        return [_copied(each, memory) if isinstance(each, Tensor) else each for each in args]


def _copied(tensor: Tensor, memory: dict[int, torch.UntypedStorage]) -> Tensor:
    if tensor.is_conj() or tensor.is_neg():
        # Kernels read through these bits, operations on complex parts refuse them.
        return tensor.detach().resolve_conj().resolve_neg().clone()
    storage = tensor.untyped_storage()
    if storage._cdata not in memory:
        memory[storage._cdata] = storage.clone()
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(memory[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Run ATen as a compiled graph runs: no gradients, no autocast, no modes of the caller's."""
    modes = torch.utils._python_dispatch._disable_current_modes()
    with torch.inference_mode(False), torch.no_grad(), modes, torch._C._DisableAutocast():
        yield
