"""Comparison of a call of a program with the same call in eager."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from litz.devices import gpu


@dataclass(frozen=True, slots=True)
class Program:
    """A call of a function, which can be repeated: each run begins with copies of function and arguments and with the
    same state of the random number generators."""

    function: Callable[..., Any]
    """The function or module."""

    args: Sequence[Any] = ()
    """Its arguments."""

    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Its named arguments."""

    backward: bool = False
    """True to compute gradients of the results' sum too."""

    cpu_state: torch.Tensor = field(default_factory=torch.random.get_rng_state)
    """State of the CPU's random number generator."""

    gpu_states: Sequence[torch.Tensor] = field(
        default_factory=lambda: gpu.get_rng_state_all() if gpu.is_available() else []
    )
    """States of those of the GPUs."""

    def run(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> list[tuple[str, Any]]:
        """Return what a call of ``wrap(function)`` did, by names for errors: results, inputs after the call, gradients
        and buffers."""
        torch.random.set_rng_state(self.cpu_state)
        gpu.set_rng_state_all(self.gpu_states)
        own, given, named = copy.deepcopy((self.function, self.args, dict(self.kwargs)))
        result = wrap(own)(*given, **named)
        if self.backward:
            _sum_of(result).backward()
        return _outcome(own, given, named, result, self.backward)


def eager(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function itself."""
    return function


def compare(
    expected: Sequence[tuple[str, Any]],
    found: Sequence[tuple[str, Any]],
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Raise ``AssertionError`` for the first value that differs from eager's.

    Values are compared by ``torch.testing.assert_close``, dtypes and strides exactly.
    """
    for (name, right), (_, own) in zip(expected, found, strict=True):
        _compare(name, right, own, rtol, atol)


def _sum_of(result: Any) -> torch.Tensor:
    """Return the sum of the elements of all results that require a gradient."""
    leaves = [
        each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    if not leaves:
        raise AssertionError("no result requires a gradient: leave out backward, or set requires_grad")
    return torch.stack([each.float().sum() for each in leaves]).sum()


def _outcome(
    function: Callable[..., Any], args: Any, kwargs: Any, result: Any, backward: bool
) -> list[tuple[str, Any]]:
    """Return what a call did, by names for errors."""
    found = [(f"result {k}", each) for k, each in enumerate(pytree.tree_leaves(result))]
    inputs = pytree.tree_leaves((args, kwargs))
    found += [(f"input {k} after the call", each) for k, each in enumerate(inputs)]
    if backward:
        found += [
            (f"gradient of input {k}", each.grad)
            for k, each in enumerate(inputs)
            if isinstance(each, torch.Tensor)
        ]
        if isinstance(function, torch.nn.Module):
            found += [(f"gradient of {name}", each.grad) for name, each in function.named_parameters()]
    if isinstance(function, torch.nn.Module):
        found += [(f"buffer {name} after the call", each) for name, each in function.named_buffers()]
    return found


def _compare(name: str, expected: Any, found: Any, rtol: float | None, atol: float | None) -> None:
    """Raise ``AssertionError`` where a value differs from eager's."""
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        if type(expected) is not type(found) or not (expected is found or expected == found):
            raise AssertionError(f"{name} is {found!r:.80}, in eager {expected!r:.80}")
        return
    torch.testing.assert_close(
        found,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=True,
        check_stride=True,
        msg=lambda text: f"{name}: {text}",
    )
