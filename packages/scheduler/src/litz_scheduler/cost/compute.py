"""What bodies cost to evaluate."""

from __future__ import annotations

from litz_ir.scalar.expr import Expr, Load, Op, walk
from litz_ir.scalar.ops_table import OPS


def body_cost(*bodies: Expr) -> int:
    """The cost of one point, in adds; shared sub-expressions count once."""
    return sum(OPS[node.name].cost for node in walk(*bodies) if isinstance(node, Op))


def body_size(*bodies: Expr) -> int:
    """The number of distinct nodes."""
    return sum(1 for _ in walk(*bodies))


def load_count(*bodies: Expr) -> int:
    """The number of distinct elements that one point reads."""
    return sum(1 for node in walk(*bodies) if isinstance(node, Load))
