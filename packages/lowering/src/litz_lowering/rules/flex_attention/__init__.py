"""Flexible attention as loops whose bodies hold its scores: importing this package fills the registry."""

from litz_lowering.rules.flex_attention import backward, forward

__all__ = ["backward", "forward"]
