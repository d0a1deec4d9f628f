"""Rules for complex tensors, which are pairs of reals: importing this package fills the registry's second table."""

from litz_lowering.rules.complex import calls, convert, pointwise, reduce, structure

__all__ = ["calls", "convert", "pointwise", "reduce", "structure"]
