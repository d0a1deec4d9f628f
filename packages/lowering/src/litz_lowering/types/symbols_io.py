"""Conversion of torch's symbolic sizes to terms, and of a ShapeEnv's ranges to a symbol table.

A static graph never calls sympy: only a ``SymInt`` that is symbolic is converted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv, statically_known_true
from torch.utils._sympy.singleton_int import SingletonInt

from litz_ir.errors import NotCompiled, SymbolError, UnsupportedOperation
from litz_ir.loops import Layout, TensorType
from litz_ir.symbols import Range, Size, SymbolInfo, SymbolKind, SymbolTable, mul, symbol
from litz_ir.symbols.sympy_io import from_sympy, to_sympy
from litz_lowering.types.compat import backed_values, is_unbacked
from litz_lowering.types.devices import Devices
from litz_lowering.types.torch_types import litz_dtype, part_dtype

_UNBOUNDED = 2**62
ONE_DEVICE = Devices()


class SymbolReader:
    """Converts symbolic numbers and records the range, hint and source of their symbols.

    One reader belongs to one lowering, of a graph over ``devices``.
    """

    def __init__(self, devices: Devices = ONE_DEVICE) -> None:
        self.devices = devices
        self._terms: dict[Any, Size] = {}
        self._substitutes: dict[Any, Any] = {}
        self._unbacked: set[str] = set()
        self._infos: dict[str, SymbolInfo] = {}

    def size(self, value: int | torch.SymInt) -> Size:
        """Convert a size to an int or a term; raises :class:`SymbolError` where no term expresses it."""
        if isinstance(value, int):
            return value
        node = value.node
        known = node.maybe_as_int()
        if known is not None:
            return int(known)
        expression = node.expr
        found = self._terms.get(expression)
        if found is None and not expression.is_Symbol and _is_constant(value):
            # Tracing has decided whether the dimension broadcasts, so rules must agree.
            found = self._terms[expression] = int(node.hint)
            self._substitutes[expression] = to_sympy(found)
        if found is None:
            spelled = expression.xreplace(self._substitutes) if self._substitutes else expression
            if not all(leaf.is_integer for leaf in spelled.free_symbols):
                raise SymbolError(f"'{expression}' depends on a float, which terms cannot express")
            found = self._terms[expression] = from_sympy(spelled)
            for leaf in spelled.free_symbols:
                self._record(leaf, node.shape_env)
        return found

    def substitute(self, value: torch.SymInt, name: str) -> None:
        """Use symbol ``name`` for a value that terms cannot express, in every size that contains it."""
        self._substitutes[value.node.expr] = to_sympy(symbol(name))

    def sizes(self, values: Iterable[int | torch.SymInt]) -> tuple[Size, ...]:
        """Convert each of ``values`` to a size."""
        return tuple(v if type(v) is int else self.size(v) for v in values)

    def tensor_type(self, value: torch.Tensor, *, is_fixed: bool = False) -> TensorType:
        """Type of a tensor: dtype, shape, strides and device. A complex tensor has that of its pairs.

        Raises :class:`UnsupportedOperation` for tensors that are not dense or are quantised.
        """
        if value.layout != torch.strided or value.is_quantized:
            raise UnsupportedOperation(f"{value.layout} and quantised tensors are not supported")
        shape, strides = self.sizes(value.shape), self.sizes(value.stride())
        part = part_dtype(value.dtype)
        if part is not None:
            shape, strides = (*shape, 2), (*(mul(2, stride) for stride in strides), 1)
        dtype = part or litz_dtype(value.dtype)
        return TensorType(dtype, shape, Layout(strides, 0, is_fixed), self.devices.of(value.device))

    def symbol_of(self, value: torch.SymInt | torch.SymFloat | torch.SymBool) -> str | None:
        """Name of the symbol that a symbolic number is; None for an expression."""
        expression = value.node.expr
        if not expression.is_Symbol:
            return None
        self._record(expression, value.node.shape_env)
        return str(expression.name)

    def is_unbacked(self, name: str) -> bool:
        """True for an unbacked symbol, whose value is read from a tensor while the graph runs."""
        return name in self._unbacked

    def define(self, name: str, kind: SymbolKind, source: str, low: int | None = None) -> None:
        """Define a symbol unknown to torch: a float or bool argument, or a value that the host computes."""
        self._infos.setdefault(name, SymbolInfo(name, kind, low, None, 1, None, source))

    def adopt(self, info: SymbolInfo) -> None:
        """Add a symbol that a subgraph uses."""
        self._infos.setdefault(info.name, info)

    def has_source(self, name: str) -> bool:
        """True when the source of the symbol's value is known."""
        info = self._infos.get(name)
        return info is not None and bool(info.source)

    def set_source(self, name: str, source: str) -> None:
        """Set the source of a symbol's value, if it has none yet."""
        info = self._infos.get(name)
        if info is not None and not info.source:
            self._infos[name] = SymbolInfo(
                info.name, info.kind, info.low, info.high, info.divisor, info.hint, source
            )

    def ranges(self) -> dict[str, Range]:
        """Ranges of the integer symbols used so far."""
        return {i.name: Range(i.low, i.high) for i in self._infos.values() if i.kind == "int"}

    def table(self) -> SymbolTable:
        """Symbol table of all symbols used."""
        return SymbolTable(tuple(self._infos[name] for name in sorted(self._infos)))

    def _record(self, leaf: Any, env: ShapeEnv) -> None:
        name = str(leaf.name)
        if name in self._infos:
            return
        if not leaf.is_integer:
            self._infos[name] = SymbolInfo(name, "float", None, None, 1, _hint(leaf, env, float), "")
            return
        if is_unbacked(leaf):
            self._unbacked.add(name)
        low, high = None, None
        known = env.var_to_range.get(leaf)
        if known is not None:
            low, high = _bound(known.lower), _bound(known.upper)
        self._infos[name] = SymbolInfo(name, "int", low, high, 1, _hint(leaf, env, int), "")


def _bound(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, OverflowError, ValueError, AttributeError):
        return None  # an infinity
    return number if abs(number) < _UNBOUNDED else None


def _hint(leaf: Any, env: ShapeEnv, kind: type[int] | type[float]) -> int | float | None:
    value = backed_values(env).get(leaf)
    if value is None:
        return None
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        if isinstance(value, SingletonInt):
            raise NotCompiled("sizes of jagged nested tensors are not supported") from error
        raise SymbolError(f"symbol {leaf} has the unreadable hint {value!r}") from error


def hint_of(size: int | torch.SymInt) -> int | None:
    """Hint of a size: its value in the traced call; None for an unbacked symbol."""
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else None


def _is_constant(value: torch.SymInt) -> bool:
    """True for an expression that the guards taken so far prove to be 0 or 1."""
    hint = hint_of(value)
    return hint in (0, 1) and bool(statically_known_true(value == hint))
