"""Rules by topic: importing this package fills the registry."""

from litz_lowering.rules import activation, cast, compare, pointwise, view

__all__ = ["activation", "cast", "compare", "pointwise", "view"]
