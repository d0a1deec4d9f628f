"""Refusal of gradients of gradients: a compiled backward has no gradient of its own.

Autograd raises an error only where it visits the node that does. So a gradient that is computed with ``create_graph``
depends, as far as autograd knows, on all inputs of the forward and on the incoming gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import Function
from torch.fx import GraphModule, Node

from litz.capture.descriptors import saved_results
from litz.capture.strided_results import base_of
from litz.host.runtime.load import HostFunction

_REFUSAL = (
    "torch.compile with aot_autograd does not currently support double backward: the gradient of a compiled function "
    "was itself differentiated. Compute the inner gradient inside the compiled function, by torch.func.grad, or call "
    "the function without torch.compile"
)


class _Refused(Function):
    """Autograd function that runs a backward, whose results depend on all tensors that are passed."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[], Any], *dependencies: torch.Tensor) -> Any:
        return run()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(_REFUSAL)


class _Connected(Function):
    """Autograd function that makes a saved tensor depend on the inputs of its forward."""

    @staticmethod
    def forward(ctx: Any, saved: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        return saved.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(_REFUSAL)


_connect: Callable[..., torch.Tensor] = _Connected.apply

refused_if_differentiated: Callable[..., Any] = _Refused.apply
"""Function of a backward without arguments, and of the tensors that its results depend on."""


def has_derivatives(tensor: torch.Tensor) -> bool:
    """Report whether autograd differentiates tensors of this dtype."""
    return tensor.is_floating_point() or tensor.is_complex()


def connected(forward: HostFunction, gm: GraphModule) -> HostFunction:
    """Return the call of a forward, which connects a tensor that it saves with its inputs.

    AOTAutograd makes the gradients depend on what is saved, which a forward computes without autograd. Nothing is
    connected where no saved tensor depends on inputs that require gradients.
    """
    placeholders = {node: k for k, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    saved = [
        (k, placeholders.get(_viewed(node)))
        for k, node in saved_results(gm)
        if isinstance(value := node.meta.get("val"), torch.Tensor) and has_derivatives(value)
    ]
    if not saved:
        return forward

    def run(args: list[Any]) -> Sequence[Any]:
        inputs = [each for each in args if isinstance(each, torch.Tensor) and each.requires_grad]
        dependent = (k for k, source in saved if source is None or args[source].requires_grad)
        position = next(dependent, None) if inputs else None
        results = forward(args)
        if position is None:
            return results
        results = list(results)
        with torch.enable_grad():
            results[position] = _connect(results[position], *inputs)
        return results

    return run


def _viewed(node: Node) -> Node:
    """Return the node whose memory a node is a view of."""
    while (base := base_of(node)) is not None:
        node = base
    return node
