"""Loop bodies: scalar expressions evaluated at each point of a loop, and the table of their operations."""

from litz_ir.costs import HEAVY
from litz_ir.scalar import build
from litz_ir.scalar.attention import FullRange, Heads, QueryKeyPoint, SummedPosition, normalized
from litz_ir.scalar.build import cast, checked, const, index, load, logical_and, masked, op, where
from litz_ir.scalar.conditions import Conditions, conditions_of_nested_reductions
from litz_ir.scalar.expr import (
    BoundsCheck,
    Checked,
    Const,
    Index,
    Indirect,
    Load,
    Masked,
    NestedReduction,
    Op,
    Param,
    Scalar,
    indirects,
    indirects_in,
    loads,
    map_indirects,
    nested_reductions,
    substitute_expr,
    substitute_params,
    transform,
)
from litz_ir.scalar.node import Expr, walk
from litz_ir.scalar.ops_table import OPS, AcceptedDTypes, DTypeRule, ScalarOp
from litz_ir.scalar.verify import unconditional_loads

__all__ = [
    "HEAVY",
    "OPS",
    "AcceptedDTypes",
    "DTypeRule",
    "ScalarOp",
    "BoundsCheck",
    "Checked",
    "Conditions",
    "Const",
    "Expr",
    "NestedReduction",
    "Heads",
    "Index",
    "Indirect",
    "Load",
    "Masked",
    "Op",
    "Param",
    "SummedPosition",
    "QueryKeyPoint",
    "Scalar",
    "FullRange",
    "build",
    "cast",
    "checked",
    "conditions_of_nested_reductions",
    "const",
    "nested_reductions",
    "index",
    "indirects",
    "indirects_in",
    "load",
    "loads",
    "logical_and",
    "map_indirects",
    "masked",
    "op",
    "normalized",
    "substitute_expr",
    "substitute_params",
    "transform",
    "unconditional_loads",
    "walk",
    "where",
]
