"""What the graph returns: values with eager's strides, terms, literals and None."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from litz_ir.dtypes import DType, b1, f64, i64
from litz_ir.errors import UnsupportedOperation
from litz_ir.loops import (
    ComplexRef,
    Input,
    Operation,
    Output,
    Ref,
    ScalarInput,
    ScalarRef,
    TensorType,
    Value,
    View,
    tensor_type,
)
from litz_ir.scalar import Const, Expr, Scalar
from litz_ir.symbols import SymbolKind, Term
from litz_lowering.builder import GraphBuilder
from litz_lowering.context import LoweringContext
from litz_lowering.subgraphs import OutputRequirements
from litz_lowering.values import Complex, Lowered, ObjectArgument, ResultType, Tensor, fixed

NUMBERS: Mapping[SymbolKind, DType] = MappingProxyType({"int": i64, "float": f64, "bool": b1})
"""The dtypes of the one-element tensors that control flow carries numbers in."""


def flatten(argument: object) -> Iterator[object]:
    """The leaves of an FX output argument, in order."""
    if isinstance(argument, list | tuple):
        for item in argument:
            yield from flatten(item)
    else:
        yield argument


def output_of(ctx: LoweringContext, value: Lowered, wanted: TensorType | None) -> Output:
    """One output. A tensor whose strides are not eager's is copied into them.

    Raises :class:`UnsupportedOperation` for what cannot leave a graph (a string).
    """
    if isinstance(value, Complex):
        pairs = value.pairs
        if wanted is not None and not _same_strides(pairs.type, wanted):
            pairs = ctx.pointwise(pairs.load, wanted, "output")
        return ComplexRef(pairs.name)
    if isinstance(value, Tensor):
        if wanted is not None and not _same_strides(value.type, wanted):
            value = ctx.pointwise(value.at, wanted, "output")
        return Ref(value.name)
    if isinstance(value, ObjectArgument):
        return Ref(value.name)
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Expr):
        return ScalarRef(value.name) if isinstance(value, Scalar) else ctx.host_scalar(value)
    if value is None or isinstance(value, int | float | Term):
        return value
    raise UnsupportedOperation(f"a graph cannot return {value!r}", node=ctx.node.name, origin=ctx.origin)


def required_type(demand: OutputRequirements, position: int, inputs: Sequence[Input]) -> ResultType:
    """The type that the output at ``position`` must have; None where it does not matter."""
    if position >= demand.carried:
        return demand.types[position] if position < len(demand.types) else None
    match inputs[position]:
        case Value(type=kind):
            return kind
        case ScalarInput(kind=number):
            return fixed(tensor_type(NUMBERS[number]))
    return None


def as_required(
    ctx: LoweringContext, demand: OutputRequirements, value: Lowered, wanted: ResultType
) -> Lowered:
    """An output of a subgraph: numbers as tensors where that is wanted, and copies of what is not its own."""
    if isinstance(value, Tensor):
        root = ctx.builder.root(value.name)
        if ctx.builder.producer(root) is None and not (demand.views and _is_view(ctx, value.name, root)):
            return ctx.pointwise(value.at, wanted or fixed(value.type), "output")
        return value
    if wanted is None or value is None:
        return value
    if not isinstance(value, Expr | Term | int | float):
        raise ctx.error(f"a subgraph cannot return {value!r} as a tensor")
    number = ctx.number(value, wanted.dtype)
    return ctx.pointwise(lambda axes: number, wanted, "output")


def output_memory_copy(builder: GraphBuilder, returned: Tensor) -> Mapping[str, TensorType]:
    """The copy with changed elements, if it is one, in whose memory a returned tensor is, with eager's layout.

    Eager copies all of the storage there, so that the result starts where the original did. AOTAutograd finds the
    elements of views that it makes anew by where the graph's results start.
    """
    owner, start = builder.owner(returned)
    if not builder.is_placed_copy(owner.name):
        return {}
    layout = replace(owner.type.layout, offset=builder.symbols.size(start))
    return {owner.name: fixed(replace(owner.type, layout=layout))}


def _is_view(ctx: LoweringContext, name: str, root: str) -> bool:
    """True when views alone lead from a value to its root."""
    while name != root:
        view = ctx.builder.producer(name)
        if not isinstance(view, View) or not view.aliases:
            return False
        name = view.base
    return True


def _same_strides(a: TensorType, b: TensorType) -> bool:
    """True when the strides agree wherever a dimension has more than one element."""
    if any(size == 0 for size in a.shape):
        return True
    pairs = zip(a.shape, a.layout.strides, b.layout.strides, strict=True)
    return a.shape == b.shape and all(size == 1 or x == y for size, x, y in pairs)


def with_fixed_outputs(
    operations: Sequence[Operation], outputs: Sequence[Output], wanted: Mapping[str, TensorType]
) -> tuple[Operation, ...]:
    """The operations, the layout of every returned value, and of memory that one is in, fixed to eager's (``wanted``,
    by value name)."""
    returned = {o.name for o in outputs if isinstance(o, Ref)} | wanted.keys()

    def promise(value: Value) -> Value:
        return (
            replace(value, type=fixed(wanted.get(value.name, value.type)))
            if value.name in returned
            else value
        )

    def visit(operation: Operation) -> Operation:
        if not any(v.name in returned and not v.type.layout.fixed for v in operation.results):
            return operation
        return replace(operation, results=tuple(map(promise, operation.results)))

    return tuple(map(visit, operations))
