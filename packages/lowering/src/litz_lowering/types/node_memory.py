"""Memory of the nodes of an FX graph: their storages, and the operators that may write to them."""

from __future__ import annotations

import torch
from torch.fx import Node


def storage_of(node: Node) -> int | None:
    """Return the identity of the storage of a node's tensor; ``None`` where there is none."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    try:
        return int(value.untyped_storage()._cdata)
    except NotImplementedError:
        return None


def may_write(node: Node) -> bool:
    """Report whether an operator may write to its arguments."""
    schema = getattr(node.target, "_schema", None)
    return isinstance(node.target, torch._ops.HigherOrderOperator) or (
        schema is not None and bool(schema.is_mutable)
    )
