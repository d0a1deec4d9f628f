"""Decomposition of operators before lowering."""

from litz_lowering.decompose.table import Decompositions, decomposition_table, users_decompositions

__all__ = ["Decompositions", "decomposition_table", "users_decompositions"]
