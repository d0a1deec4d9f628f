"""Parameters and buffers that changed in a way that the guards of torch 2.11 miss.

Dynamo skips the guards of a module's tensors while the module's attributes are the same objects. An assignment to
``.data``, as ``Module.to`` makes, keeps the object and may change its dtype and strides; ``requires_grad_`` keeps
it too. Torch 2.12 compares these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch._dynamo import disable
from torch.fx import GraphModule

from litz.notices import log_once

MISSED_BY_GUARDS = torch.__version__ < "2.12"
"""True where guards miss assignments to ``.data`` and ``requires_grad``."""

_LINE = (
    "litz: a call runs in eager: dtype, device, shape, strides or requires_grad of a parameter or buffer changed since "
    "the graph was compiled, which guards of torch 2.11 miss. Call torch.compiler.reset() after the change, or "
    "change it before the first call."
)


def with_parameter_guard(
    call: Callable[..., Any], gm: GraphModule, inputs: Sequence[Any], positions: Collection[int]
) -> Callable[..., Any]:
    """Return ``call`` for parameters and buffers, those at ``positions``, that are as ``inputs`` are, and the captured
    graph ``gm`` for others."""
    checked = [k for k in sorted(positions) if isinstance(inputs[k], torch.Tensor)]
    if not checked:
        return call
    gradients = _has_gradients(gm)

    def properties(tensors: Sequence[Any]) -> list[Any]:
        return [_properties(tensors[k], gradients) for k in checked]

    compiled_for = properties(inputs)
    eager: Callable[..., Any] = disable(gm, reason="it runs in eager")

    def run(*args: Any) -> Any:
        if properties(args) == compiled_for:
            return call(*args)
        log_once(_LINE)
        return eager(*args)

    return run


def _has_gradients(gm: GraphModule) -> bool:
    """Report whether a result of the graph, as it is called now, may need a gradient."""
    switched = (node for each in gm.modules() if isinstance(each, GraphModule) for node in each.graph.nodes)
    return torch.is_grad_enabled() or any(node.target is torch._C._set_grad_enabled for node in switched)


def _properties(tensor: torch.Tensor, gradients: bool) -> tuple[object, ...]:
    """Return what can change of a tensor that stays the same object, and a graph is compiled for."""
    return tensor.dtype, tensor.device, tensor.shape, tensor.stride(), gradients and tensor.requires_grad
