"""Device placement of constants: masks and tables are created on the device that they would be copied to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.fused import Decision
from litz_ir.loops import Axis, Extern, LoopGraph, Operation, Pointwise, Ref, Value, View, rename_reads
from litz_ir.passes import PassContext
from litz_ir.scalar import OPS, Const, Expr, Index, Load, Masked, Op, cast, indirects_in, walk
from litz_ir.symbols import symbol
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import type_bytes
from litz_scheduler.analysis.graph_facts import overwritten_names

_COPY = "aten._to_copy.default"
"""The ATen operator that copies a tensor to another device."""

_EXACT_INTEGER_OPS = frozenset({"add", "sub", "mul", "neg", "abs", "minimum", "maximum"})
"""Arithmetic that has the same bits for integers on every device. Other dtypes allow no arithmetic, only selections,
comparisons and bit operations."""


@dataclass(frozen=True, slots=True)
class SinkConstants:
    """Replace copies of constants to another device by loops that create them there.

    Applies to values with the same bits on every device: literals, indices, integers and comparisons of them. It saves
    the transfer and the synchronisation.
    """

    name: str = "sink-constants"
    """The name of the pass."""
    ulp: int = 0
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        copies = _ConstantCopies(data)
        operations: list[Operation] = []
        for operation in data.operations:
            replacement = copies.replacement(operation)
            if replacement:
                nbytes = type_bytes(operation.results[0].type)
                context.decide(Decision("devices", operation.name, "make", reasons.SINK_CONSTANT, nbytes))
            operations.extend(replacement or (operation,))
        return data.with_operations(tuple(operations))


class _ConstantCopies:
    """Finds constants of a graph and creates them on other devices, once for each device."""

    def __init__(self, graph: LoopGraph) -> None:
        self._producers = {value.name: each for each in graph.operations for value in each.results}
        self._overwritten = overwritten_names(graph)
        self._constant: dict[str, bool] = {}
        self._created: dict[tuple[str, Device], str] = {}

    def replacement(self, operation: Operation) -> tuple[Operation, ...]:
        """Return the operations that replace a copy; empty for other operations and copies that remain."""
        if not isinstance(operation, Extern) or operation.target != _COPY:
            return ()
        (argument,), (result,) = operation.arguments, operation.results
        if type(argument) is not Ref or type(result) is not Value or not self._is_constant(argument.name):
            return ()
        source, target = self._producers[argument.name].results[0].type, result.type
        if not (source.dtype == target.dtype or _converts_exactly(source.dtype, target.dtype)):
            return ()
        created: list[Operation] = []
        name = self._on_device(argument.name, target.device, created)
        axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(target.shape))
        body = cast(Load(name, tuple(symbol(axis.name) for axis in axes), source.dtype), target.dtype)
        return (*created, Pointwise(results=(result,), axes=axes, bodies=(body,), origin=operation.origin))

    def _is_constant(self, name: str) -> bool:
        """Return whether a value depends on no input and has the same bits on every device."""
        if name not in self._constant:
            self._constant[name] = self._find(name)
        return self._constant[name]

    def _find(self, name: str) -> bool:
        operation = self._producers.get(name)
        if not isinstance(operation, Pointwise | View) or name in self._overwritten:
            return False
        (value, *others) = operation.results
        bodies = operation.bodies if isinstance(operation, Pointwise) else map(Index, operation.index)
        exact = not others and value.replaces is None and all(map(_is_exact, bodies))
        return exact and all(map(self._is_constant, operation.reads))

    def _on_device(self, name: str, device: Device, created: list[Operation]) -> str:
        """Return the name of a constant on another device; operations that create it are appended to ``created``."""
        if (name, device) not in self._created:
            operation = self._producers[name]
            names = {read: self._on_device(read, device, created) for read in operation.reads}
            (value,) = operation.results
            type_ = replace(value.type, layout=replace(value.type.layout, fixed=False), device=device)
            copy = self._created[name, device] = f"{name}.on.{device}"
            created.append(replace(rename_reads(operation, names), results=(Value(copy, type_),)))
        return self._created[name, device]


def _is_exact(body: Expr) -> bool:
    """Return whether a body has the same bits on every device if its loads have."""
    return all(map(_is_deterministic, walk(body)))


def _is_deterministic(node: Expr) -> bool:
    match node:
        case Const() | Masked():
            return True
        case Index():
            return not any(True for _ in indirects_in(node.term))
        case Load():
            return not any(True for term in node.index for _ in indirects_in(term))
        case Op(name="cast"):
            return _converts_exactly(node.args[0].dtype, node.dtype)
        case Op():
            exact = node.name in _EXACT_INTEGER_OPS and not node.dtype.is_float
            return exact or OPS[node.name].rule in ("compare", "where") or OPS[node.name].accepts == "bits"
    return False


def _converts_exactly(source: DType, dtype: DType) -> bool:
    """Return whether a conversion gives the same bits on every device."""
    supported = all(each.bits >= 16 for each in (source, dtype) if each.is_float)
    return supported and (dtype.is_float or not source.is_float)
