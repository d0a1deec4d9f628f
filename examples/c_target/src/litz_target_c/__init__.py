"""Code generator from litz plans to plain C99."""

__version__ = "0.1.0"
