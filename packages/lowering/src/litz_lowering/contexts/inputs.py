"""Inputs of a graph, one per placeholder, and attributes read from its module."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.nn import Module

from litz_ir.dtypes import b1, f64
from litz_ir.errors import SymbolError, UnsupportedOperation
from litz_ir.loops import ComplexValue, Input, ObjectInput, ScalarInput, Value, contiguous
from litz_ir.scalar import Expr, Scalar, build
from litz_ir.symbols import Size, SymbolKind, free_symbols, symbol
from litz_lowering.contexts.builder import GraphBuilder, offset_of
from litz_lowering.contexts.context import LoweringContext
from litz_lowering.contexts.values import Complex, Lowered, ObjectArgument, Tensor
from litz_lowering.types.torch_types import known_dtype

_AXIS = re.compile(r"[eir]\d+")


class Inputs:
    """Inputs of a loop graph.

    ``made`` lists them in the order of placeholders; ``named`` maps placeholders to their names.
    """

    def __init__(self, builder: GraphBuilder) -> None:
        self.made: list[Input] = []
        self.named: dict[str, str] = {}
        self._builder = builder
        self._symbols = builder.symbols

    def placeholder(self, node: Node, *, is_row_major: bool = False) -> Lowered:
        """Add the input for a placeholder and return its value; ``is_row_major`` if it is not in the traced layout.

        Raises :class:`UnsupportedOperation` for one without metadata.
        """
        if "val" not in node.meta and node.users:
            raise UnsupportedOperation(
                f"input {node.name} has no metadata",
                hint="trace with FakeTensors so that it carries meta['val']",
            )
        value, name = node.meta.get("val"), self._builder.unique(node.name, own=True)
        self.named[node.name] = name
        match value:
            case torch.Tensor():
                return self._tensor(name, value, is_row_major)
            case torch.SymInt():
                return self._integer(name, value)
            case bool() | torch.SymBool():
                return self._scalar(name, "bool")
            case int():
                self.made.append(ScalarInput(name, "int", term=value))
                return value
            case float() | torch.SymFloat():
                return self._scalar(name, "float")
            case None:
                self.made.append(ObjectInput(name, "none"))
                return None
        self.made.append(ObjectInput(name, "generator" if isinstance(value, torch.Generator) else "object"))
        return ObjectArgument(name)

    def _tensor(self, name: str, value: torch.Tensor, is_row_major: bool) -> Tensor | Complex:
        self._name_sizes(name, value.shape)
        make, kind = (
            ComplexValue if value.is_complex() else Value,
            self._symbols.tensor_type(value, is_fixed=True),
        )
        found = make(name, replace(kind, layout=contiguous(kind.shape, fixed=True)) if is_row_major else kind)
        self.made.append(found)
        for dim, size in enumerate(found.type.shape):
            for each in free_symbols(size):
                self._symbols.set_source(each, f"{name}.size({dim})")
        tensor = Tensor(found)
        self._builder.record_offset(tensor, offset_of(value), offset_of(value))
        return Complex(tensor) if value.is_complex() else tensor

    def _name_sizes(self, name: str, shape: Iterable[int | torch.SymInt]) -> None:
        """Define symbols for sizes that no term expresses, such as that of a saved ``arange`` with a float step."""
        for dim, size in enumerate(shape):
            if not isinstance(size, torch.SymInt):
                continue
            try:
                self._symbols.size(size)
            except SymbolError:
                own = self._builder.unique(f"{name}_size{dim}")
                self._symbols.define(own, "int", f"{name}.size({dim})", low=0)
                self._symbols.substitute(size, own)

    def _integer(self, name: str, value: torch.SymInt) -> Size:
        try:
            term = self._symbols.size(value)
        except SymbolError:  # no term expresses it, such as a size whose bits a forward masks
            self._symbols.define(name, "int", f"argument {name}")
            self._symbols.substitute(value, name)
            self.made.append(ScalarInput(name, "int", symbol=name))
            return symbol(name)
        bound = self._symbols.symbol_of(value)
        already = any(isinstance(i, ScalarInput) and i.symbol == bound for i in self.made)
        if bound is None or already:
            self.made.append(ScalarInput(name, "int", term=term))
        else:
            self._symbols.set_source(bound, f"argument {name}")
            self.made.append(ScalarInput(name, "int", symbol=bound))
        return term

    def _scalar(self, name: str, kind: SymbolKind) -> Expr:
        # Bodies distinguish scalars from axes by name only.
        symbol = self._builder.unique(f"{name}_scalar") if _AXIS.fullmatch(name) else name
        self._symbols.define(symbol, kind, f"argument {name}")
        self.made.append(ScalarInput(name, kind, symbol=symbol))
        return Scalar(symbol, f64 if kind == "float" else b1)


def attribute(module: Module, path: str) -> torch.Tensor | GraphModule | float | None:
    """Value of a ``get_attr`` node: a number, None, a dense tensor or a subgraph.

    Raises :class:`UnsupportedOperation` for anything else.
    """
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    if isinstance(value, int | float | bool | GraphModule | None):
        return value
    if not isinstance(value, torch.Tensor):
        raise UnsupportedOperation(f"attribute {path} is a {type(value).__name__}, not a tensor or number")
    if not (known_dtype(value.dtype) or value.is_complex()) or value.layout != torch.strided:
        raise UnsupportedOperation(f"constant {path} is a {value.layout} tensor of {value.dtype}")
    return value


def literal(ctx: LoweringContext, elements: list[int | float | bool]) -> Tensor:
    """Lower a tiny constant to a body that selects the element by row-major position."""
    kind = ctx.output
    if not elements:
        return ctx.pointwise(lambda axes: build.const(0, kind.dtype))
    weights: list[int] = [1]
    for size in reversed(kind.shape[1:]):
        weights.insert(0, weights[0] * int(str(size)))

    def body(axes: tuple[Size, ...]) -> Expr:
        position = sum((axis * weight for axis, weight in zip(axes, weights)), start=0)
        result: Expr = build.const(elements[-1], kind.dtype)
        for number, element in reversed(list(enumerate(elements[:-1]))):
            here = build.op("eq", build.index(position), build.index(number))
            result = build.where(here, build.const(element, kind.dtype), result)
        return result

    return ctx.pointwise(body)
