"""Parameters and buffers that changed in a way that the guards of torch 2.11 miss.

Dynamo skips the guards of a module's tensors while the module's attributes are the same objects. An assignment to
``.data``, as ``Module.to`` makes, keeps the object and may change its dtype and strides. Torch 2.12 compares these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch._C._dynamo.guards import TensorGuards
from torch._dynamo import disable
from torch.fx import GraphModule

from litz.notices import log_once

MISSED_BY_GUARDS = torch.__version__ < "2.12"
"""True where guards miss assignments to ``.data``."""

_LINE = (
    "litz: a call runs in eager: dtype, strides or shape of a parameter or buffer changed since the graph was "
    "compiled, which guards of torch 2.11 miss. Call torch.compiler.reset() after the change, or change it before the "
    "first call."
)


def with_parameter_guard(
    call: Callable[..., Any], gm: GraphModule, inputs: Sequence[Any], positions: Collection[int]
) -> Callable[..., Any]:
    """Return ``call`` for parameters and buffers, those at ``positions``, that are as ``inputs`` are, and the captured
    graph ``gm`` for others."""
    checked = [k for k in sorted(positions) if isinstance(inputs[k], torch.Tensor)]
    if not checked:
        return call
    tensors = [inputs[k] for k in checked]
    # One list of numbers for each tensor, which the stub of the class leaves out.
    sizes: list[Any] = [list(tensor.shape) for tensor in tensors]
    strides: list[Any] = [list(tensor.stride()) for tensor in tensors]
    guards = TensorGuards(
        *tensors,
        dynamic_dims_sizes=sizes,
        dynamic_dims_strides=strides,
    )
    eager: Callable[..., Any] = disable(gm, reason="it runs in eager")

    def run(*args: Any) -> Any:
        if guards.check(*(args[k] for k in checked)):
            return call(*args)
        log_once(_LINE)
        return eager(*args)

    return run
