"""Lowered graphs of functions, and the reasons of their fallbacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import lowering_check
import torch
from lowering_check import captured, clone
from torch.utils._pytree import tree_map

from litz_lowering import LoweredGraph

check = partial(lowering_check.check, rounding=2e-2)
"""``lowering_check.check`` with a tolerance of one rounding of 16-bit floats."""


def lowered(function: Callable[..., Any], *args: Any, dynamic: bool = False) -> LoweredGraph:
    """Lower ``function``, run once on ``args``."""
    compiled, interpreted = captured(function, dynamic=dynamic)
    compiled(*tree_map(clone, args))
    return interpreted.lowered[-1]


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Run ``function`` lowered and interpreted."""
    return captured(function)[0](*args)


def operations(found: LoweredGraph) -> list[str]:
    """Kinds of the operations, in order."""
    return [type(operation).__name__ for operation in found.graph.operations]


def reasons(found: LoweredGraph) -> list[str]:
    """Reasons of the fallbacks."""
    return [fallback.reason for fallback in found.fallbacks]


def converted(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert ``x`` to ``dtype``, multiplied by ten for integers so that values differ."""
    return x.to(dtype) if dtype.is_floating_point else (x * 10).abs().to(dtype)
