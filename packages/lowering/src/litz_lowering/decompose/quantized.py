"""Decompositions of ``quantized_decomposed`` operators that torch implements in Python over ATen.

Their meta functions state wrong dtypes, so whatever follows them in a graph could not be lowered correctly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

_MODULE = "torch.ao.quantization.fx._decomposed"
_NAMES = ("choose_qparams_per_token", "choose_qparams_per_token_asymmetric")


def of_quantized() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """Implementations of these operators, once the program has imported the torch module that registers them."""
    module = sys.modules.get(_MODULE)
    if module is None:
        return {}
    return {getattr(torch.ops.quantized_decomposed, name).default: getattr(module, name) for name in _NAMES}
