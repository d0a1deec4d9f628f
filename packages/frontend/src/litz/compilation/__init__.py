"""Compilation of one graph: the stages, with cache, fallback and autotuning around them."""

from litz.compilation.compilation import Compilation

__all__ = ["Compilation"]
