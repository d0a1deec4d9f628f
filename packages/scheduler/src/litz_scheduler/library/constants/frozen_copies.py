"""Copies of parameters on a GPU that are reused from call to call: weights in another dtype or layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.fused import Decision
from litz_ir.loops import Axis, LoopGraph, Operation, Pointwise, is_dense
from litz_ir.passes import PassContext
from litz_ir.scalar import Const, Expr, Index, Load, Masked, Op, substitute_expr, transform
from litz_ir.symbols import Size, Symbol
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import owned_elsewhere
from litz_scheduler.library.constants.frozen_region import FrozenRegion

_RANK = 4
"""Most dimensions of a copy."""

_LEAST_BYTES = 4 << 20
"""Least bytes of parameters whose copies are worth two launches in each call."""


@dataclass(frozen=True, slots=True)
class FreezeParameterCopies:
    """Move copies of parameters on a GPU into the frozen region, whose results are reused from call to call.

    Under autocast these are the weights that a library reads: cast, permuted, or with zeros behind a dimension, unless
    the graph returns or overwrites their memory. Of several GPUs those of the first are moved. The host has all of them
    made again, in stream order, where a parameter has changed.
    """

    name: str = "freeze-parameter-copies"
    """The name of the pass."""
    ulp: int = 0
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        pairs = {device: known.copies for device, known in context.capabilities.items() if known.copies}
        if not data.frozen or not pairs:
            return data
        region = FrozenRegion(data)
        if region.frozen != set(data.frozen):
            return data  # it has operations of a CPU, of which it is computed whole
        found = _Copies(data, pairs)
        copies = {each.name: each for each in region.others if found.visit(each)}
        first = min((each.results[0].type.device for each in copies.values()), key=str, default=None)
        own = {name for name, each in copies.items() if each.results[0].type.device == first}
        read = {name for each in region.others if each.name not in own for name in each.reads}
        chosen = [found.composed[name] for name in copies if name in own & read]
        if sum(map(found.read_bytes, chosen)) < _LEAST_BYTES:
            return data
        for each in chosen:
            region.compute(each)
            region.result(each.name, each.results[0].type)
            context.decide(Decision("library", each.name, "freeze", reasons.LIBRARY_FROZEN))
        others = (each for each in region.others if each.name not in own)
        return data.with_operations((*region.region(), *others))


class _Copies:
    """The loops of a graph that copy parameters."""

    def __init__(self, graph: LoopGraph, pairs: Mapping[Device, Collection[tuple[DType, DType]]]) -> None:
        self._values = graph.values()
        self._frozen = frozenset(graph.frozen)
        self._owned = owned_elsewhere(graph)
        self._pairs = pairs
        self.composed: dict[str, Pointwise] = {}
        """The loops by result, each reading its parameter itself."""

    def visit(self, operation: Operation) -> bool:
        """Return whether an operation copies a parameter, or such a copy, and may be frozen."""
        if not isinstance(operation, Pointwise) or operation.token or len(operation.results) != 1:
            return False
        (result,), (body,) = operation.results, operation.bodies
        layout, shape = result.type.layout, result.type.shape
        if result.replaces is not None or result.name in self._owned or len(shape) > _RANK:
            return False
        if not all(isinstance(axis.size, int) and axis.size for axis in operation.axes) or not is_dense(
            shape, layout
        ):
            return False
        body = transform(body, self._from_parameter)
        load = copied(body, operation.axes)
        if load is None or load.buffer not in self._frozen:
            return False
        source = self._values[load.buffer].type
        device = result.type.device
        if source.device != device or (source.dtype, result.type.dtype) not in self._pairs.get(device, ()):
            return False
        if any(not isinstance(size, int) for size in (*source.shape, *source.layout.strides)):
            return False
        self.composed[operation.name] = replace(operation, bodies=(body,))
        return True

    def read_bytes(self, loop: Pointwise) -> int:
        """Return the bytes of the parameter that a loop copies."""
        load = copied(loop.bodies[0], loop.axes)
        assert load is not None, "a copy was found before"
        type_ = self._values[load.buffer].type
        return prod(size for size in type_.shape if isinstance(size, int)) * type_.dtype.itemsize

    def _from_parameter(self, node: Expr) -> Expr:
        """Return what a load reads, where that is a copy of a parameter."""
        loop = self.composed.get(node.buffer) if isinstance(node, Load) else None
        if loop is None or not isinstance(node, Load):
            return node
        point: dict[str, Size] = {axis.name: at for axis, at in zip(loop.axes, node.index, strict=True)}
        return substitute_expr(loop.bodies[0], point)


def copied(body: Expr, axes: Sequence[Axis]) -> Load | None:
    """Return the load whose element a body has at a point of ``axes``, or zero behind a size; else ``None``.

    It may be cast once. Each index is that of another axis, or 0, and no axis repeats elements.
    """
    node, casts = body, 0
    while not isinstance(node, Load):
        if isinstance(node, Op) and node.name == "cast":
            (node,) = node.args
            casts += 1
        elif isinstance(node, Masked) and isinstance(node.other, Const) and node.other.value == 0:
            if not _is_limit(node.cond):
                return None
            node = node.body
        else:
            return None
    varying = [term.name for term in node.index if isinstance(term, Symbol)]
    own = [axis.name for axis in axes if axis.size != 1]
    known = all(isinstance(term, Symbol) or term == 0 for term in node.index)
    each_once = len(set(varying)) == len(varying) and set(own) <= set(varying) <= {axis.name for axis in axes}
    return node if known and each_once and casts <= 1 else None


def _is_limit(condition: Expr) -> bool:
    """Return whether a condition says that axes are below sizes, and nothing else."""
    match condition:
        case Op(name="bit_and", args=parts):
            return all(map(_is_limit, parts))
        case Op(name="lt", args=(Index(term=Symbol()), Index(term=int()) | Const(value=int()))):
            return True
    return False
