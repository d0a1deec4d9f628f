"""Small loop graphs for tests of the reference interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

from litz_ir.dtypes import DType, f32
from litz_ir.interp.graph import run_graph
from litz_ir.loops.nodes import (
    Axis,
    LoopGraph,
    Operation,
    Ref,
    Value,
    tensor_type,
)
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size, symbol

i, j, r, s = symbol("i"), symbol("j"), symbol("r"), symbol("s")
I4, J3 = Axis("i", 4), Axis("j", 3)
X = Value("x", tensor_type(f32, 4, 3))
x = np.arange(12, dtype=np.float32).reshape(4, 3) - 5


def graph(
    *operations: Operation, inputs: tuple[Any, ...] = (X,), outputs: tuple[Any, ...] | None = None
) -> LoopGraph:
    names = outputs or tuple(Ref(value.name) for value in operations[-1].results)
    return LoopGraph("g", SymbolTable(), inputs, (), operations, names)


def run(*operations: Operation, with_: tuple[Any, ...] = (x,), inputs: tuple[Any, ...] = (X,)) -> list[Any]:
    return run_graph(graph(*operations, inputs=inputs), with_)


def value(name: str, *shape: Size, dtype: DType = f32) -> Value:
    return Value(name, tensor_type(dtype, *shape))
