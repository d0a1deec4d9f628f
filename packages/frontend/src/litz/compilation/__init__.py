"""The stages of one graph, with the cache, fallback and tuning around them."""

from litz.compilation.compilation import EVERYTHING, Compilation

__all__ = ["EVERYTHING", "Compilation"]
