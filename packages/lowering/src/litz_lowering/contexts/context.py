"""Context of a lowering rule: the node, the types of its results, and constructors of operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from litz_ir.dtypes import DType, b1, f64, i64
from litz_ir.loops import (
    Argument,
    Assert,
    AssertedError,
    Attributes,
    Call,
    ComplexRef,
    Extern,
    HostScalar,
    Random,
    Ref,
    ScalarRef,
    TensorType,
    Value,
)  # fmt: skip
from litz_ir.scalar import BoundsCheck, Expr, Indirect, Scalar, build
from litz_ir.symbols import Size, Symbol, Term, symbol
from litz_lowering.contexts.builder import GraphBuilder
from litz_lowering.contexts.loop_context import LoopContext
from litz_lowering.contexts.values import (
    Axes,
    Complex,
    Declined,
    Lowered,
    ObjectArgument,
    ResultType,
    Subgraph,
    Tensor,
    fixed,
)

__all__ = [
    "Axes",
    "Complex",
    "Declined",
    "GraphBuilder",
    "Lowered",
    "LoweringContext",
    "ObjectArgument",
    "ResultType",
    "Tensor",
]


class LoweringContext(LoopContext):
    """Argument of each rule, with constructors of loop operations and calls.

    Operations carry the origin of the node; names derive from the node's.
    """

    # --- calls ----------------------------------------

    def call(
        self,
        make: Callable[..., Call],
        target: str,
        arguments: Sequence[Lowered | Argument],
        keywords: Mapping[str, Lowered | Argument] | None = None,
        types: Sequence[ResultType] | None = None,
        /,
        **fields: Any,
    ) -> tuple[Tensor, ...]:
        """Append one call of a named routine and return its results in the layout of the routine.

        ``make`` is the class of the call, ``fields`` its further fields. ``types`` are the node's outputs when
        not given. Complex results are returned as their pairs.
        """
        wanted = self.outputs if types is None else tuple(types)
        values: list[Value] = []
        for position, result in enumerate(wanted):
            kind_of_result = self.absent() if result is None else fixed(result)
            is_complex = types is None and self.complex_outputs[position]
            values.append(self.value(kind_of_result, self.position(position), is_complex=is_complex))
        attributes = self._attributes(keywords or {})
        self.append(
            make(
                results=tuple(values), target=target, arguments=tuple(map(self.argument, arguments)),
                attributes=attributes, unpack=self.unpack, origin=self.origin, **fields,
            )
        )  # fmt: skip
        return tuple(map(Tensor, values))

    def draw(
        self, target: str, arguments: Sequence[Lowered | Argument],
        keywords: Mapping[str, Lowered | Argument], type: TensorType, name: str,
    ) -> Tensor:  # fmt: skip
        """Append a random call with one result, an intermediate named after the node and ``name``."""
        return self._intermediate(
            Random, target, arguments, keywords, type, name, layout_requirement="exact", token="rng"
        )

    def extern(
        self, target: str, arguments: Sequence[Lowered | Argument], type: TensorType, name: str, reason: str
    ) -> Tensor:
        """Append a call of an ATen overload with one result, an intermediate named after the node and ``name``."""
        return self._intermediate(Extern, target, arguments, {}, type, name, reason=reason)

    def _intermediate(
        self, make: Callable[..., Call], target: str, arguments: Sequence[Lowered | Argument],
        keywords: Mapping[str, Lowered | Argument], type: TensorType, name: str, **fields: Any,
    ) -> Tensor:  # fmt: skip
        value = self.value(fixed(type), name)
        self.append(
            make(
                results=(value,), target=target, arguments=tuple(map(self.argument, arguments)),
                attributes=self._attributes(keywords), origin=self.origin, **fields,
            )
        )  # fmt: skip
        return Tensor(value)

    def _attributes(self, keywords: Mapping[str, Lowered | Argument]) -> Attributes:
        return tuple((key, self.argument(value)) for key, value in keywords.items())

    def argument(self, value: Lowered | Argument) -> Argument:
        """Convert a rule's argument to an argument of a call.

        Raises an error for a subgraph.
        """
        if isinstance(value, Complex):
            return ComplexRef(value.name)
        if isinstance(value, Tensor | ObjectArgument):
            return Ref(value.name)
        if isinstance(value, tuple | list):
            return tuple(map(self.argument, value))
        if isinstance(value, Scalar):
            return ScalarRef(value.name)
        if isinstance(value, Expr):
            return self.host_scalar(value)
        if isinstance(value, Subgraph):
            raise self.error(f"a call cannot be passed the subgraph {value.path}")
        return value

    # --- scalars ----------------------------------------

    def number(self, value: Expr | Size | float, dtype: DType) -> Expr:
        """Convert a Python number, a size or a symbolic scalar to a body of ``dtype``."""
        if isinstance(value, Expr):
            return build.cast(value, dtype)
        if isinstance(value, Term):
            return build.cast(build.index(value), dtype)
        return build.const(value, dtype)

    def host_scalar(self, body: Expr) -> ScalarRef:
        """Append the computation of a float or bool on the host, once per call."""
        symbol_name = self.builder.unique(f"{self.node.name}_scalar")
        kind = b1 if body.dtype == b1 else f64
        self.builder.symbols.define(
            symbol_name, "bool" if kind == b1 else "float", f"computed by {self.node.name}"
        )
        self.append(
            HostScalar(results=(), symbol=symbol_name, body=build.cast(body, kind), origin=self.origin)
        )
        return ScalarRef(symbol_name)

    def host_integer(self, body: Expr, name: str, low: int | None = None) -> Symbol:
        """Append the computation of an integer of at least ``low`` on the host, once per call.

        It serves values that index terms cannot express. ``name`` distinguishes it from others of the node.
        """
        symbol_name = self.builder.unique(f"{self.node.name}_{name}")
        self.builder.symbols.define(symbol_name, "int", f"computed by {self.node.name}", low)
        self.bind(symbol_name, body)
        return symbol(symbol_name)

    def unbacked_size(self, label: str) -> Symbol:
        """Define a size of at least 0 that the result of a call determines.

        ``name`` distinguishes it from others of the node.
        """
        symbol_name = self.builder.unique(f"{self.node.name}_{label}")
        self.builder.symbols.define(symbol_name, "int", "", low=0)
        return symbol(symbol_name)

    def bind(self, name: str, body: Expr) -> None:
        """Give a symbol of the ShapeEnv its value, computed by the host once per call."""
        self.builder.symbols.set_source(name, f"computed by {self.node.name}")
        self.append(HostScalar(results=(), symbol=name, body=build.cast(body, i64), origin=self.origin))

    @property
    def unbacked(self) -> tuple[str, ...]:
        """Unbacked symbols that this node defines: sizes, offsets or its value."""
        return tuple(map(str, self.node.meta.get("unbacked_bindings") or ()))

    def indirect(
        self,
        value: Expr,
        size: Size,
        *,
        wrap: bool = False,
        check: BoundsCheck = "raised",
        fault: str = "index",
    ) -> Size:
        """Make an index from a value: see :class:`litz_ir.scalar.expr.Indirect`."""
        return Indirect(value, size, wrap, check, fault)

    def check(self, condition: Expr, message: str, error: AssertedError = "RuntimeError") -> None:
        """Append an assertion that raises ``error`` where a 0-d condition is false."""
        self.append(
            Assert(
                results=(),
                condition=condition,
                message=message,
                error=error,
                token="assert",
                origin=self.origin,
            )
        )
