"""Views in an ATen graph, and autograd's notion of them."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node


def _is_view(overload: torch._ops.OpOverload) -> bool:
    """True when the result aliases the first argument without writing to it."""
    first = overload._schema.arguments[0].alias_info if overload._schema.arguments else None
    return first is not None and not first.is_write


def viewed(node: Node) -> Node | None:
    """Node whose memory a view shows; None for other nodes. Each of several views shows the whole node."""
    source = node.args[0] if node.args else None
    if not isinstance(source, Node):
        return None
    if node.target is operator.getitem:
        return source if viewed(source) is not None else None
    return source if isinstance(node.target, torch._ops.OpOverload) and _is_view(node.target) else None


def is_returned(node: Node) -> bool:
    """True when the graph returns the node, or a view of it."""
    return any(user.op == "output" or (viewed(user) is node and is_returned(user)) for user in node.users)


def is_detached(node: Node) -> bool:
    """True when eager's autograd does not treat the node as a view of its memory."""
    source = viewed(node)
    return source is not None and (node.target is torch.ops.aten.detach.default or is_detached(source))
