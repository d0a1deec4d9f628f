"""Compilation of one graph: the stages, with cache, fallback and autotuning around them."""

from litz.compilation.compilation import EVERYTHING, Compilation

__all__ = ["EVERYTHING", "Compilation"]
