"""The fused graph: operations in groups that each run as one kernel, and the decisions that made them."""

from litz_ir.fused.decision import Decision, Reason
from litz_ir.fused.group import FusedGraph, Group, Member, StorageClass

__all__ = ["Decision", "Reason", "StorageClass", "FusedGraph", "Group", "Member"]
