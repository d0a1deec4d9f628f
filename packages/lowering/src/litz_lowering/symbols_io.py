"""Sizes between torch and litz: symbolic integers become terms, and what the ShapeEnv knows becomes a symbol table.

A static graph never calls sympy: only a ``SymInt`` that is truly symbolic is converted.
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
from litz_lowering.compat import backed_values, is_unbacked
from litz_lowering.devices import Devices
from litz_lowering.torch_types import litz_dtype, part_dtype

_UNBOUNDED = 2**62
ONE_DEVICE = Devices()


class SymbolReader:
    """Converts torch's symbolic numbers and remembers what is known of each symbol that it met.

    One reader belongs to one lowering, of a graph over ``devices``.
    """

    def __init__(self, devices: Devices = ONE_DEVICE) -> None:
        self.devices = devices
        self._terms: dict[Any, Size] = {}
        self._stand_ins: dict[Any, Any] = {}
        self._unbacked: set[str] = set()
        self._infos: dict[str, SymbolInfo] = {}

    def size(self, value: int | torch.SymInt) -> Size:
        """A size as an int or a term; raises :class:`SymbolError` on what terms cannot express."""
        if isinstance(value, int):
            return value
        node = value.node
        known = node.maybe_as_int()
        if known is not None:
            return int(known)
        expression = node.expr
        found = self._terms.get(expression)
        if found is None and not expression.is_Symbol and _is_constant(value):
            # Tracing has chosen between broadcasting and not, and so must rules.
            found = self._terms[expression] = int(node.hint)
            self._stand_ins[expression] = to_sympy(found)
        if found is None:
            spelled = expression.xreplace(self._stand_ins) if self._stand_ins else expression
            found = self._terms[expression] = from_sympy(spelled)
            for leaf in spelled.free_symbols:
                self._meet(leaf, node.shape_env)
        return found

    def stand_in(self, value: torch.SymInt, name: str) -> None:
        """Let symbol ``name`` stand for a value that terms cannot express, in every size that it is part of."""
        self._stand_ins[value.node.expr] = to_sympy(symbol(name))

    def sizes(self, values: Iterable[int | torch.SymInt]) -> tuple[Size, ...]:
        """Each of ``values`` as a size."""
        return tuple(v if type(v) is int else self.size(v) for v in values)

    def tensor_type(self, value: torch.Tensor, *, is_fixed: bool = False) -> TensorType:
        """Dtype, shape, strides and device; raises :class:`UnsupportedOperation` for what is not dense and plain.

        A complex tensor's type is that of its pairs: parts on a last dimension of two.
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
        """The name of the symbol that a symbolic number is, or None where it is an expression of others."""
        expression = value.node.expr
        if not expression.is_Symbol:
            return None
        self._meet(expression, value.node.shape_env)
        return str(expression.name)

    def is_data(self, name: str) -> bool:
        """True for a symbol whose value comes out of a tensor while the graph runs."""
        return name in self._unbacked

    def define(self, name: str, kind: SymbolKind, source: str, low: int | None = None) -> None:
        """Enter a symbol that torch has none for: a float or bool argument, or a value that the host computes."""
        self._infos.setdefault(name, SymbolInfo(name, kind, low, None, 1, None, source))

    def adopt(self, info: SymbolInfo) -> None:
        """Enter a symbol that a subgraph met."""
        self._infos.setdefault(info.name, info)

    def is_sourced(self, name: str) -> bool:
        """True when it was said what binds the symbol."""
        info = self._infos.get(name)
        return info is not None and bool(info.source)

    def sourced(self, name: str, source: str) -> None:
        """Say what binds a symbol that was met."""
        info = self._infos.get(name)
        if info is not None and not info.source:
            self._infos[name] = SymbolInfo(
                info.name, info.kind, info.low, info.high, info.divisor, info.hint, source
            )

    def ranges(self) -> dict[str, Range]:
        """What is known of the integer symbols met so far."""
        return {i.name: Range(i.low, i.high) for i in self._infos.values() if i.kind == "int"}

    def table(self) -> SymbolTable:
        """Everything known of the symbols met."""
        return SymbolTable(tuple(self._infos[name] for name in sorted(self._infos)))

    def _meet(self, leaf: Any, env: ShapeEnv) -> None:
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
            raise NotCompiled(
                "its sizes are those of a jagged nested tensor, which are no numbers"
            ) from error
        raise SymbolError(f"symbol {leaf} has the unreadable hint {value!r}") from error


def hint_of(size: int | torch.SymInt) -> int | None:
    """What a size is in the call that was traced; None where it is data."""
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else None


def _is_constant(value: torch.SymInt) -> bool:
    """True for an expression that is 0 or 1 whatever its symbols are, by the guards that tracing has taken."""
    hint = hint_of(value)
    return hint in (0, 1) and bool(statically_known_true(value == hint))
