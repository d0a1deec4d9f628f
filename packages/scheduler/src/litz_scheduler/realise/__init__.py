"""Realise or inline: values that are materialised to memory, and values that their readers recompute."""

from litz_scheduler.realise.inline import Inline

__all__ = ["Inline"]
