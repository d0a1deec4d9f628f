"""Eager's value of each function, for special values and to report eager's own error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from maths.functions import Function
from maths.inputs import Array

_SPELLED: dict[str, Callable[..., torch.Tensor]] = {
    "floor_div": partial(torch.div, rounding_mode="floor"),
    "trunc_div": partial(torch.div, rounding_mode="trunc"),
}


def eager(function: Function, a: Array, b: Array) -> Array:
    """Return eager PyTorch's results at ``a``, or at the pairs of ``a`` and ``b``."""
    call = _SPELLED.get(function.name) or getattr(torch, function.name)
    arguments = (a, b)[: function.arity]
    result: Array = call(*(torch.from_numpy(each) for each in arguments)).numpy()
    return result
