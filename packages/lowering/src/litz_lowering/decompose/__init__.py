"""Decomposition of operators before lowering."""
