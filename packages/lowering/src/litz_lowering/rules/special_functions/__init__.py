"""Rules of special functions: Bessel functions, orthogonal polynomials, incomplete gamma."""

from litz_lowering.rules.special_functions import incomplete_gamma, orthogonal, special

__all__ = ["incomplete_gamma", "orthogonal", "special"]
