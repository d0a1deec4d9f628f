"""Parameters and buffers that changed in a way that the guards of torch 2.11 miss.

Dynamo skips the guards of a module's tensors while the module's attributes are the same objects. An assignment to
``.data``, as ``Module.to`` makes, keeps the object and may change its dtype and strides. Torch 2.12 compares these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch._dynamo import disable
from torch.fx import GraphModule

from litz.notices import log_once

MISSED_BY_GUARDS = torch.__version__ < "2.12"
"""True where guards miss assignments to ``.data``."""

_LINE = (
    "litz: a call runs in eager: dtype, device, shape or strides of a parameter or buffer changed since the graph "
    "was compiled, which guards of torch 2.11 miss. Call torch.compiler.reset() after the change, or change it before "
    "the first call."
)


def with_parameter_guard(
    call: Callable[..., Any], gm: GraphModule, inputs: Sequence[Any], positions: Collection[int]
) -> Callable[..., Any]:
    """Return ``call`` for parameters and buffers, those at ``positions``, that are as ``inputs`` are, and the captured
    graph ``gm`` for others."""
    checked = [k for k in sorted(positions) if isinstance(inputs[k], torch.Tensor)]
    if not checked:
        return call
    compiled_for = _properties([inputs[k] for k in checked])
    eager: Callable[..., Any] = disable(gm, reason="it runs in eager")

    def run(*args: Any) -> Any:
        if _properties([args[k] for k in checked]) == compiled_for:
            return call(*args)
        log_once(_LINE)
        return eager(*args)

    return run


def _properties(
    tensors: Sequence[torch.Tensor],
) -> list[tuple[torch.dtype, torch.device, torch.Size, tuple[int, ...]]]:
    """Return what an assignment to ``.data`` can change of each tensor, and a graph is compiled for."""
    return [(each.dtype, each.device, each.shape, each.stride()) for each in tensors]
