"""What differs between the versions of torch that litz supports (2.11 to 2.13), and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.symbol import SymT, symbol_is_type


def backed_values(shape_env: ShapeEnv) -> Mapping[Any, Any]:
    """The value that each backed symbol had when it was traced (named ``var_to_val`` before 2.12)."""
    values: Mapping[Any, Any] | None = getattr(shape_env, "backed_var_to_val", None)
    if values is None:
        values = shape_env.var_to_val
    return values


def is_unbacked(leaf: Any) -> bool:
    """True for a symbol that had no value when it was traced."""
    return symbol_is_type(leaf, SymT.UNBACKED_INT)
