"""The fused graph: groups of operations, and the choices that made them."""

from litz_ir.fused.decision import REASONS, Decision
from litz_ir.fused.group import Fate, FusedGraph, Group, Member
from litz_ir.fused.verify import verify_fused

__all__ = ["REASONS", "Decision", "Fate", "FusedGraph", "Group", "Member", "verify_fused"]
