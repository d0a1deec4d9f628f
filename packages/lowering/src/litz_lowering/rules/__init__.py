"""Rules by topic: importing this package fills the registry."""

from litz_lowering.registry import REGISTRY
from litz_lowering.rules import (
    activation,
    attention,
    cast,
    compare,
    concat,
    conv,
    factory,
    foreach,
    host_scalar,
    index,
    matmul,
    norm,
    pad,
    pointwise,
    pool,
    random,
    reduce,
    scan,
    scatter,
    softmax,
    sort,
    upsample,
    view,
)

RULES = REGISTRY
"""The registry, every rule in it."""

__all__ = [
    "RULES",
    "activation",
    "attention",
    "cast",
    "compare",
    "concat",
    "conv",
    "factory",
    "foreach",
    "host_scalar",
    "index",
    "matmul",
    "norm",
    "pad",
    "pointwise",
    "pool",
    "random",
    "reduce",
    "scan",
    "scatter",
    "softmax",
    "sort",
    "upsample",
    "view",
]
