"""Rules of elementwise operators: arithmetic, comparisons, activations, casts."""

from litz_lowering.rules.elementwise import activation, arithmetic, cast, compare, pointwise

__all__ = ["activation", "arithmetic", "cast", "compare", "pointwise"]
