"""What is made of nothing on one device and copied to another, as masks and tables are, is made there in its place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.fused import Decision
from litz_ir.loops import Axis, Extern, LoopGraph, Operation, Pointwise, Ref, Value, View, rename_reads
from litz_ir.passes import PassContext
from litz_ir.scalar import OPS, Const, Expr, Index, Load, Masked, Op, cast, indirects_in, walk
from litz_ir.symbols import symbol
from litz_scheduler.cost import type_bytes
from litz_scheduler.graph_facts import overwritten_names

COPY = "aten._to_copy.default"

_WHOLE = frozenset({"add", "sub", "mul", "neg", "abs", "minimum", "maximum"})
"""Operations that give the same bits of integers wherever they run, as choices, comparisons and bits do of anything."""


@dataclass(frozen=True, slots=True)
class SinkConstants:
    """Make on a device what is copied to it and has the same bits wherever it is made: constants, positions, integers
    and comparisons of them. Nothing is moved then, and nobody waits."""

    name: str = "sink-constants"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        maker = _Maker(data)
        operations: list[Operation] = []
        for operation in data.operations:
            made = maker.instead(operation)
            if made:
                nbytes = type_bytes(operation.results[0].type)
                context.decide(Decision("devices", operation.name, "make", "sink.constant", nbytes))
            operations.extend(made or (operation,))
        return data.with_operations(tuple(operations))


class _Maker:
    """The operations of a graph by what they define, and the names of what was made again elsewhere."""

    def __init__(self, graph: LoopGraph) -> None:
        self._makers = {value.name: each for each in graph.operations for value in each.results}
        self._overwritten = overwritten_names(graph)
        self._of_nothing: dict[str, bool] = {}
        self._made: dict[tuple[str, Device], str] = {}

    def instead(self, operation: Operation) -> tuple[Operation, ...]:
        """What is done in place of a copy; nothing where that stays, as anything else does."""
        if not isinstance(operation, Extern) or operation.target != COPY:
            return ()
        (argument,), (result,) = operation.arguments, operation.results
        if type(argument) is not Ref or type(result) is not Value or not self._is_of_nothing(argument.name):
            return ()
        source, wanted = self._makers[argument.name].results[0].type, result.type
        if not (source.dtype == wanted.dtype or _converts_exactly(source.dtype, wanted.dtype)):
            return ()
        made: list[Operation] = []
        there = self._there(argument.name, wanted.device, made)
        axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(wanted.shape))
        body = cast(Load(there, tuple(symbol(axis.name) for axis in axes), source.dtype), wanted.dtype)
        return (*made, Pointwise(results=(result,), axes=axes, bodies=(body,), origin=operation.origin))

    def _is_of_nothing(self, name: str) -> bool:
        """True for a value that comes from no memory, and has the same bits wherever it is made."""
        if name not in self._of_nothing:
            self._of_nothing[name] = self._find(name)
        return self._of_nothing[name]

    def _find(self, name: str) -> bool:
        operation = self._makers.get(name)
        if not isinstance(operation, Pointwise | View) or name in self._overwritten:
            return False
        (value, *others) = operation.results
        bodies = operation.bodies if isinstance(operation, Pointwise) else map(Index, operation.index)
        exact = not others and value.replaces is None and all(map(_is_exact, bodies))
        return exact and all(map(self._is_of_nothing, operation.reads))

    def _there(self, name: str, device: Device, made: list[Operation]) -> str:
        """The name of the same value on another device; what makes it there is added to ``made``."""
        if (name, device) not in self._made:
            operation = self._makers[name]
            names = {read: self._there(read, device, made) for read in operation.reads}
            (value,) = operation.results
            kind = replace(value.type, layout=replace(value.type.layout, fixed=False), device=device)
            there = self._made[name, device] = f"{name}.on.{device}"
            made.append(replace(rename_reads(operation, names), results=(Value(there, kind),)))
        return self._made[name, device]


def _is_exact(body: Expr) -> bool:
    """True for what has the same bits on every device, if what it reads has."""
    return all(map(_keeps_bits, walk(body)))


def _keeps_bits(node: Expr) -> bool:
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
            whole = node.name in _WHOLE and not node.dtype.is_float
            return whole or OPS[node.name].rule in ("compare", "where") or OPS[node.name].accepts == "bits"
    return False


def _converts_exactly(source: DType, dtype: DType) -> bool:
    """True where a conversion rounds alike on every device."""
    wide = all(each.bits >= 16 for each in (source, dtype) if each.is_float)
    return wide and (dtype.is_float or not source.is_float)
