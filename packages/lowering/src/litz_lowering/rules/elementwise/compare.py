"""Comparisons, computed in the promoted dtype of the operands, with a ``b1`` result."""

from __future__ import annotations

from litz_lowering.expressions import formula as f
from litz_lowering.rules.elementwise.pointwise import row

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    row(f.binary(_name), f"{_name}.Tensor", f"{_name}.Scalar", computed="operands")
