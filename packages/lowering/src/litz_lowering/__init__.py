"""From ATen graphs in torch.fx to litz loop graphs."""

from litz_lowering.devices import gpus_of
from litz_lowering.driver import LoweredGraph, decompositions, lower, registered
from litz_lowering.fallback import Fallback
from litz_lowering.metadata import correct_metadata
from litz_lowering.options import LoweringOptions
from litz_lowering.registry import Rule, rule

__version__ = "0.1.0"

__all__ = [
    "Fallback",
    "LoweredGraph",
    "LoweringOptions",
    "Rule",
    "correct_metadata",
    "decompositions",
    "gpus_of",
    "lower",
    "registered",
    "rule",
]
