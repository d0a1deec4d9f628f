"""Costs of scalar operations, in additions, which options name without loading the table of operations."""

from __future__ import annotations

HEAVY = 8
"""Cost above which a value is not worth recomputing."""
