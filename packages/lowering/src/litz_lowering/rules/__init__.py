"""Lowering rules by topic; importing this package fills the registry."""

from litz_lowering.contexts.registry import REGISTRY
from litz_lowering.rules import (
    complex,
    elementwise,
    flex_attention,
    foreach,
    host_scalar,
    indexing,
    linalg,
    nn,
    python_operators,
    random,
    reductions,
    regions,
    special_functions,
)

RULES = REGISTRY
"""Registry with all rules."""

RULES.seal()

__all__ = [
    "RULES",
    "complex",
    "elementwise",
    "flex_attention",
    "foreach",
    "host_scalar",
    "indexing",
    "linalg",
    "nn",
    "python_operators",
    "random",
    "reductions",
    "regions",
    "special_functions",
]
