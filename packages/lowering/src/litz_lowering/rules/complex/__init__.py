"""Rules for complex tensors, stored as pairs of reals; importing this package registers them."""

from litz_lowering.rules.complex import calls, convert, pointwise, reduce, structure

__all__ = ["calls", "convert", "pointwise", "reduce", "structure"]
