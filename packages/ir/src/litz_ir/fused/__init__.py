"""The fused graph: operations in groups that each run as one kernel, and the decisions that made them.

Plans have decisions, and no groups: these are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litz_ir.deferred import deferred
from litz_ir.fused.decision import Decision, Reason

if TYPE_CHECKING:
    from litz_ir.fused.group import FusedGraph, Group, Member, StorageClass

__all__ = ["Decision", "Reason", "StorageClass", "FusedGraph", "Group", "Member"]

__getattr__, __dir__ = deferred(
    __name__, dict.fromkeys(("FusedGraph", "Group", "Member", "StorageClass"), "litz_ir.fused.group")
)
