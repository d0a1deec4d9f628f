"""Flexible attention as loops whose bodies hold its scores: importing this package fills the registry."""

from litz_lowering.rules.flexible import backward, forward

__all__ = ["backward", "forward"]
