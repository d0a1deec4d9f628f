"""What a lowering rule is given: the node at hand, its results' types, and the ways to make loop operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from litz_ir.device import Device
from litz_ir.dtypes import DType, b1, f32, f64, i64
from litz_ir.errors import LitzError, UnsupportedOperation
from litz_ir.loops.nodes import (
    Argument,
    Assert,
    AssertedError,
    Attributes,
    Axis,
    Call,
    Combiner,
    ComplexRef,
    ComplexValue,
    Extern,
    HostScalar,
    Kind,
    Mutation,
    Operation,
    Pointwise,
    Random,
    Reduction,
    ReductionName,
    Ref,
    ScalarRef,
    Scan,
    Scatter,
    ScatterMode,
    Sort,
    TensorType,
    Value,
    View,
    tensor_type,
)  # fmt: skip
from litz_ir.origin import Origin
from litz_ir.scalar import build
from litz_ir.scalar.expr import Check, Expr, Indirect, Scalar
from litz_ir.symbols.term import Size, Symbol, Term, symbol
from litz_lowering.builder import GraphBuilder
from litz_lowering.options import LoweringOptions
from litz_lowering.subgraphs import Subgraphs
from litz_lowering.values import (
    Axes,
    Complex,
    Declined,
    Lowered,
    Opaque,
    ResultType,
    Subgraph,
    Tensor,
    axes_of,
    fixed,
    terms_of,
)

__all__ = [
    "Axes",
    "Complex",
    "Declined",
    "GraphBuilder",
    "Lowered",
    "LoweringContext",
    "Opaque",
    "ResultType",
    "Tensor",
]


class LoweringContext:
    """Given to each rule. Operations it makes carry the node's origin, and names made from the node's.

    ``node`` is the FX node; ``outputs`` the types of what it returns, in order (None for what is no tensor);
    ``options`` what the caller chose; ``subgraphs`` lowers what higher-order operators run. ``complex_outputs`` says
    which results are complex: their type is that of the pairs.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        node: Node,
        outputs: tuple[ResultType, ...],
        origin: Origin,
        options: LoweringOptions,
        subgraphs: Subgraphs,
        complex_outputs: tuple[bool, ...] = (),
    ) -> None:
        self.builder = builder
        self.node = node
        self.outputs = outputs
        self.origin = origin
        self.options = options
        self.subgraphs = subgraphs
        self.complex_outputs = complex_outputs or (False,) * len(outputs)

    @property
    def output(self) -> TensorType:
        """The type of the single result: eager's dtype, shape, strides and device."""
        if len(self.outputs) != 1 or self.outputs[0] is None:
            raise self.error(f"expected one tensor result, found {len(self.outputs)}")
        return self.outputs[0]

    @property
    def unpack(self) -> bool:
        """True when the operator returns a tuple or list."""
        return isinstance(self.node.meta.get("val"), list | tuple)

    def of_result(self, position: int) -> LoweringContext:
        """The same node as if it returned that result alone: rules for one tensor then serve operators over lists."""
        return LoweringContext(
            self.builder, self.node, (self.outputs[position],), self.origin, self.options, self.subgraphs,
            self.complex_outputs[position : position + 1],
        )  # fmt: skip

    def position(self, number: int) -> str:
        """The name of result ``number`` among the node's: nothing for the only one."""
        return str(number) if self.unpack else ""

    def nested(self, results: Sequence[Tensor | Complex]) -> tuple[Lowered, ...]:
        """A call's results in the nesting in which the operator returns them, sizes and None in their places."""
        left = iter(results)

        def visit(value: object) -> Lowered:
            if isinstance(value, list | tuple):
                return tuple(map(visit, value))
            tensor = next(left)
            if isinstance(value, torch.Tensor):
                return tensor
            return self.builder.symbols.size(value) if isinstance(value, int | torch.SymInt) else None

        return tuple(map(visit, self.node.meta["val"]))

    @property
    def named_arguments(self) -> dict[str, Any]:
        """The FX node's own arguments by the names that the operator's schema gives them; defaults are left out."""
        target = self.node.target
        assert isinstance(target, torch._ops.OpOverload), "only operators have a schema"
        names = [a.name for a in target._schema.arguments]
        return {**dict(zip(names, self.node.args)), **self.node.kwargs}

    def error(self, message: str, *, hint: str = "") -> LitzError:
        """An error that names this node and the user's line; raise what it returns."""
        name = self.origin.node
        hint = hint or f"litz runs it as ATen when {name!r} is in LoweringOptions.force_extern"
        return UnsupportedOperation(message, node=name, origin=self.origin, hint=hint)

    # --- types and names ----------------------------------------

    def temporary(self, dtype: DType, shape: Sequence[Size], device: Device | None = None) -> TensorType:
        """The type of an intermediate: contiguous, its layout free to change."""
        return tensor_type(dtype, *shape, device=device or self._device())

    def _device(self) -> Device:
        for kind in self.outputs:
            if kind is not None:
                return kind.device
        raise self.error("no result tells which device to compute on")

    def absent(self) -> TensorType:
        """The type that stands where an operator returns None in place of a tensor; nothing reads it."""
        return tensor_type(f32, 0)

    def value(self, kind: TensorType, name: str = "", *, is_complex: bool = False) -> Value:
        """A new value called after the node and ``name``; ``is_complex``: a call returns it as a complex tensor."""
        own = self.node.name
        make = ComplexValue if is_complex else Value
        return make(
            self.builder.unique(f"{own}_{name}") if name else self.builder.unique(own, own=True), kind
        )

    def simplify(self, term: Size, axes: Sequence[Axis]) -> Size:
        """The term under the ranges of ``axes`` and of the graph's symbols."""
        return self.builder.simplifier(tuple(axes)).simplify(term)

    # --- loops ----------------------------------------

    def pointwise(
        self, body: Callable[[Axes], Expr], type: TensorType | None = None, name: str = ""
    ) -> Tensor:
        """``result[i] = body(i)`` for every index of ``type`` (the node's result when not given), cast to its dtype.

        ``name`` marks an intermediate: its value is called after the node and it.
        """
        kind = type or self.output
        axes = axes_of(kind.shape)
        value = self.value(kind, name)
        expr = build.cast(body(terms_of(axes)), kind.dtype)
        self.append(Pointwise(results=(value,), axes=axes, bodies=(expr,), origin=self.origin))
        return Tensor(value)

    def reduction(
        self,
        combiner: ReductionName | Combiner,
        body: Callable[[Axes, Axes], Expr | tuple[Expr, ...]],
        over: Sequence[Size],
        types: Sequence[TensorType],
        names: Sequence[str] = ("",),
    ) -> tuple[Tensor, ...]:
        """Combine ``body(i, r)`` over every index ``r`` of the sizes ``over``, for every index ``i`` of the results.

        All ``types`` have the same shape; there is one type and name for each result of the combiner.
        """
        how = Kind(combiner) if isinstance(combiner, str) else combiner
        axes, inner = axes_of(types[0].shape), axes_of(over, "r")
        made = body(terms_of(axes), terms_of(inner))
        bodies = made if isinstance(made, tuple) else (made,)
        values = tuple(self.value(t, n) for t, n in zip(types, names, strict=True))
        self.append(
            Reduction(
                results=values, axes=axes, reduce_axes=inner, combiner=how, bodies=bodies, origin=self.origin
            )
        )
        return tuple(map(Tensor, values))

    def reduce(
        self,
        combiner: ReductionName,
        x: Tensor,
        dims: Sequence[int],
        dtype: DType,
        *,
        body: Callable[[Axes], Expr] | None = None,
        keepdim: bool = False,
        type: TensorType | None = None,
        name: str = "",
    ) -> Tensor:
        """Combine over dimensions ``dims`` (non-negative) of ``x``, or ``body(index of x)``, in ``dtype``.

        The result has type ``type``, or else is an intermediate of ``dtype`` with the dimensions dropped or kept as 1.
        """
        drop = set(dims)
        shape = [1 if d in drop else s for d, s in enumerate(x.shape) if keepdim or d not in drop]
        kind = type or self.temporary(dtype, shape, x.device)

        def full(outer: Axes, inner: Axes) -> Expr:
            left, right = iter(outer), iter(inner)
            index: list[Size] = []
            for d in range(x.rank):
                if d in drop:
                    index.append(next(right))
                    if keepdim:
                        next(left)
                else:
                    index.append(next(left))
            return build.cast(body(tuple(index)) if body else x.load(index), dtype)

        over = [x.shape[d] for d in range(x.rank) if d in drop]
        return self.reduction(combiner, full, over, (kind,), (name,))[0]

    def scan(
        self,
        combiner: ReductionName | Combiner,
        body: Callable[[Axes], Expr | tuple[Expr, ...]],
        dimension: int,
        types: Sequence[TensorType],
        names: Sequence[str] = ("",),
    ) -> tuple[Tensor, ...]:
        """``result[i] = combine of body over the points up to and including i along dimension``."""
        how = Kind(combiner) if isinstance(combiner, str) else combiner
        axes = axes_of(types[0].shape)
        made = body(terms_of(axes))
        values = tuple(self.value(t, n) for t, n in zip(types, names, strict=True))
        self.append(
            Scan(
                results=values,
                axes=(*axes[:dimension], *axes[dimension + 1 :]),
                scan_axis=axes[dimension],
                dimension=dimension,
                combiner=how,
                bodies=made if isinstance(made, tuple) else (made,),
                origin=self.origin,
            )
        )
        return tuple(map(Tensor, values))

    def scatter(
        self,
        base: Tensor,
        over: Sequence[Size],
        index: Callable[[Axes], Sequence[Size]],
        body: Callable[[Axes], Expr],
        *,
        mode: ScatterMode = "set",
        type: TensorType | None = None,
        name: str = "",
    ) -> Tensor:
        """A copy of ``base`` with ``body(i)`` combined into element ``index(i)``, for all ``i`` below ``over``."""
        kind = type or self.output
        axes = axes_of(over)
        terms = terms_of(axes)
        value = self.value(kind, name)
        where = tuple(self.simplify(t, axes) for t in index(terms))
        made = build.cast(body(terms), kind.dtype)
        self.append(
            Scatter(
                results=(value,),
                base=base.name,
                axes=axes,
                index=where,
                body=made,
                mode=mode,
                origin=self.origin,
            )
        )
        return Tensor(value)

    def sort(
        self, source: Tensor, dimension: int, types: Sequence[TensorType], *, descending: bool, stable: bool = True,
        names: Sequence[str] = ("0", "1"),
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """(sorted values, positions) of ``source`` along a dimension."""
        values, positions = (self.value(t, n) for t, n in zip(types, names, strict=True))
        self.append(
            Sort(
                results=(values, positions), source=source.name, dimension=dimension, descending=descending,
                stable=stable, origin=self.origin,
            )
        )  # fmt: skip
        return Tensor(values), Tensor(positions)

    def view(
        self,
        base: Tensor,
        index: Callable[[Axes], Sequence[Size]],
        type: TensorType | None = None,
        *,
        aliases: bool = True,
        name: str = "",
    ) -> Tensor:
        """``result[i] = base[index(i)]``; ``aliases`` where eager's result shares memory with ``base``."""
        kind = type or self.output
        if any(size == 0 for size in kind.shape):
            # There is no element to point at, and no memory to share.
            return self.pointwise(lambda axes: build.const(0, kind.dtype), kind, name)
        axes = axes_of(kind.shape)
        value = self.value(kind, name)
        mapped = tuple(self.simplify(t, axes) for t in index(terms_of(axes)))
        self.append(
            View(
                results=(value,), base=base.name, axes=axes, index=mapped, aliases=aliases, origin=self.origin
            )
        )
        return Tensor(value)

    def mutation(self, target: Tensor, source: Tensor) -> Tensor:
        """Overwrite ``target`` with ``source`` (same shape and dtype); what it returns is the target's new version."""
        value = replace(self.value(target.type), replaces=target.name)
        self.append(Mutation(results=(value,), target=target.name, source=source.name, origin=self.origin))
        self.builder.replaced(target.name, Tensor(value))
        return Tensor(value)

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
        """One call of a named routine. Its results, complex ones as their pairs, stay in memory as it returns them.

        ``make`` is its class, ``fields`` further fields of that; ``types`` are the node's outputs when not given.
        """
        wanted = self.outputs if types is None else tuple(types)
        values: list[Value] = []
        for position, result in enumerate(wanted):
            kind_of_result = self.absent() if result is None else fixed(result)
            is_complex = types is None and self.complex_outputs[position]
            values.append(self.value(kind_of_result, self.position(position), is_complex=is_complex))
        attributes: Attributes = tuple((k, self.argument(v)) for k, v in (keywords or {}).items())
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
        """One random call with one result, an intermediate called after the node and ``name``."""
        value = self.value(fixed(type), name)
        self.append(
            Random(
                results=(value,),
                target=target,
                arguments=tuple(map(self.argument, arguments)),
                attributes=tuple((k, self.argument(v)) for k, v in keywords.items()),
                need="exact",
                token="rng",
                origin=self.origin,
            )
        )
        return Tensor(value)

    def extern(
        self, target: str, arguments: Sequence[Lowered | Argument], type: TensorType, name: str, reason: str
    ) -> Tensor:
        """One call of an ATen overload with one result, an intermediate called after the node and ``name``."""
        value = self.value(fixed(type), name)
        self.append(
            Extern(
                results=(value,),
                target=target,
                arguments=tuple(map(self.argument, arguments)),
                reason=reason,
                origin=self.origin,
            )
        )
        return Tensor(value)

    def argument(self, value: Lowered | Argument) -> Argument:
        """A rule's argument as an argument of a call."""
        if isinstance(value, Complex):
            return ComplexRef(value.name)
        if isinstance(value, Tensor | Opaque):
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

    def number(self, value: Expr | Size | float, dtype: DType) -> Expr:
        """A Python number, a size or a symbolic scalar as a body of ``dtype``."""
        if isinstance(value, Expr):
            return build.cast(value, dtype)
        if isinstance(value, Term):
            return build.cast(build.index(value), dtype)
        return build.const(value, dtype)

    def host_scalar(self, body: Expr) -> ScalarRef:
        """A float or bool computed once per call, for those who need a number and not a body."""
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
        """An integer, at least ``low``, computed once per call: for what index terms cannot express.

        ``name`` tells it from others of the node.
        """
        symbol_name = self.builder.unique(f"{self.node.name}_{name}")
        self.builder.symbols.define(symbol_name, "int", f"computed by {self.node.name}", low)
        self.bind(symbol_name, body)
        return symbol(symbol_name)

    def bind(self, name: str, body: Expr) -> None:
        """Give a symbol that the ShapeEnv knows its value, computed once per call."""
        self.builder.symbols.sourced(name, f"computed by {self.node.name}")
        self.append(HostScalar(results=(), symbol=name, body=build.cast(body, i64), origin=self.origin))

    @property
    def unbacked(self) -> tuple[str, ...]:
        """The symbols that stand for what this node reads out of tensors: sizes, offsets, or its value."""
        return tuple(map(str, self.node.meta.get("unbacked_bindings") or ()))

    def indirect(
        self, value: Expr, size: Size, *, wrap: bool = False, check: Check = "raised", fault: str = "index"
    ) -> Size:
        """An index that comes from a value: see :class:`litz_ir.scalar.expr.Indirect`."""
        return Indirect(value, size, wrap, check, fault)

    def check(self, condition: Expr, message: str, error: AssertedError = "RuntimeError") -> None:
        """Raise when the program gets here, unless a 0-d condition holds."""
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

    def append(self, operation: Operation) -> None:
        """Add an operation that was made by hand."""
        self.builder.append(operation)
