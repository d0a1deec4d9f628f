"""Builder of loop graphs: tensors with NumPy's operators, broadcasting, views, reductions, gathers and regions."""

from litz_ir.builder.graph_builder import GraphBuilder
from litz_ir.builder.tensor import Operand, Tensor

__all__ = ["GraphBuilder", "Operand", "Tensor"]
