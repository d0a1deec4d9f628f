"""The fused graph: groups of operations, and the choices that made them."""

from litz_ir.fused.decision import REASONS, Decision
from litz_ir.fused.group import FusedGraph, Group, Member, StorageClass
from litz_ir.fused.verify import verify_fused

__all__ = ["REASONS", "Decision", "StorageClass", "FusedGraph", "Group", "Member", "verify_fused"]
