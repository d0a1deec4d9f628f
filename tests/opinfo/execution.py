"""Run of an entry on one sample, eager or compiled, with everything observable after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from opinfo.entries import ENTRIES, Unit
from opinfo.sample import Sample
from opinfo.samples import DIFFERENTIABLE, Mode, seed

Program = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """Outcome of a run: values by label (results, gradients, arguments after the call), or the error it raised."""

    leaves: dict[str, Any] = field(default_factory=dict)
    structure: str = ""
    shared: frozenset[tuple[str, str]] = frozenset()
    error: Exception | None = None


def program_of(unit: Unit, mode: Mode) -> Program:
    """Return the function to run: the operator, or its variant that writes its first argument."""
    entry = ENTRIES[unit.entry]
    operator = entry.inplace_variant if mode == "inplace" else entry.op

    def program(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    return program


def run(program: Program, sample: Sample, mode: Mode) -> Seen:
    """Call the program on the sample, which it may write; an exception is part of the outcome."""
    seed()
    before = sample.tensors()
    try:
        result = program(*sample.args, **sample.kwargs)
        leaves, spec = pytree.tree_flatten(result)
        found = {f"result {number}": leaf for number, leaf in enumerate(leaves)}
        shared = _shared(found, before)
        if mode in DIFFERENTIABLE:
            found |= _gradients(sample, result)
    except Exception as error:
        return Seen(error=error)
    found |= {f"argument {number} after the call": leaf for number, leaf in enumerate(before)}
    detached = {
        label: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for label, leaf in found.items()
    }
    return Seen(detached, str(spec), shared)


def _gradients(sample: Sample, result: Any) -> dict[str, Any]:
    """Return the gradients of all results, with a different weight for each element, for all arguments that require
    one."""
    results = [
        leaf
        for leaf in pytree.tree_leaves(sample.differentiable(result))
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    wanted = [leaf for leaf in sample.tensors() if leaf.requires_grad]
    if not results or not wanted:
        return {}
    weights = [
        torch.linspace(0.5, 1.5, leaf.numel(), dtype=torch.float64).reshape(leaf.shape).to(leaf)
        for leaf in results
    ]
    gradients = torch.autograd.grad(results, wanted, weights, allow_unused=True)
    return {f"gradient {number}": gradient for number, gradient in enumerate(gradients)}


def _shared(results: dict[str, Any], arguments: list[torch.Tensor]) -> frozenset[tuple[str, str]]:
    """Return the pairs of a result and an argument or other result that share a storage."""
    owners = [(f"argument {number}", _storage(tensor)) for number, tensor in enumerate(arguments)]
    pairs = []
    for label, leaf in results.items():
        storage = _storage(leaf)
        if storage is not None:
            pairs += [(label, owner) for owner, other in owners if other == storage]
            owners.append((label, storage))
    return frozenset(pairs)


def _storage(leaf: Any) -> int | None:
    """Return the identity of a tensor's storage; `None` without elements, which have no memory to share."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or leaf.numel() == 0:
        return None
    address: int = leaf.untyped_storage()._cdata
    return address
