"""Operators whose results may share memory with their arguments."""

from __future__ import annotations

import torch

_UNDECLARED_VIEWS = frozenset(
    ("aten::_unsafe_view", "aten::lift", "aten::unsafe_chunk", "aten::unsafe_split", "aten::unsafe_split_with_sizes")
)  # fmt: skip
"""Operators that return views, though their schemas do not say so."""


def may_share_memory(overload: torch._ops.OpOverload) -> bool:
    """True when a result of the operator may be a view of an argument, or the argument itself."""
    schema = overload._schema
    return schema.name in _UNDECLARED_VIEWS or any(each.alias_info is not None for each in schema.returns)
