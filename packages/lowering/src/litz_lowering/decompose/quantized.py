"""Operators of ``quantized_decomposed`` that torch writes as Python over ATen, decomposed into just that.

Their meta functions state other dtypes than the operators give, so that nothing that follows them in a graph could be
trusted if they were left whole.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

_MODULE = "torch.ao.quantization.fx._decomposed"
_NAMES = ("choose_qparams_per_token", "choose_qparams_per_token_asymmetric")


def of_quantized() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """What such operators are, once the program has imported the module of torch that registers them."""
    module = sys.modules.get(_MODULE)
    if module is None:
        return {}
    return {getattr(torch.ops.quantized_decomposed, name).default: getattr(module, name) for name in _NAMES}
