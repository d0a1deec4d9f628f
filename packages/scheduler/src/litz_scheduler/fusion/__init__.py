"""Fusion: operations over the same points become one kernel."""

from litz_scheduler.fusion.walk import Fuse

__all__ = ["Fuse"]
