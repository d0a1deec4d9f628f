"""Outputs of a graph: values with eager's strides, terms, literals and None."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import torch

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
from litz_ir.symbols import SymbolKind, Term, free_symbols
from litz_lowering.contexts.builder import GraphBuilder
from litz_lowering.contexts.context import LoweringContext
from litz_lowering.contexts.subgraphs import SubgraphRequirements
from litz_lowering.contexts.values import Complex, Lowered, ObjectArgument, ResultType, Tensor, fixed
from litz_lowering.types.symbols_io import SymbolReader

NUMBERS: Mapping[SymbolKind, DType] = MappingProxyType({"int": i64, "float": f64, "bool": b1})
"""Dtypes of the one-element tensors by which control flow passes numbers."""


def flatten(argument: object) -> Iterator[object]:
    """Yield the leaves of an FX output argument, in order."""
    if isinstance(argument, list | tuple):
        for item in argument:
            yield from flatten(item)
    else:
        yield argument


def result_types(symbols: SymbolReader, value: object) -> tuple[tuple[ResultType, ...], tuple[bool, ...]]:
    """Return the types of a node's results, ``value`` in its metadata, and True for each that is complex."""
    leaves = [leaf for leaf in flatten(value) if leaf is not None or isinstance(value, list | tuple)]
    types = tuple(symbols.tensor_type(leaf) if isinstance(leaf, torch.Tensor) else None for leaf in leaves)
    return types, tuple(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in leaves)


def output_of(ctx: LoweringContext, value: Lowered, wanted: TensorType | None) -> Output:
    """Make one output of the graph. A tensor without eager's strides is copied.

    Raises :class:`UnsupportedOperation` for a value that a graph cannot return, such as a string.
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


def required_type(requirements: SubgraphRequirements, position: int, inputs: Sequence[Input]) -> ResultType:
    """Type that the output at ``position`` must have; None where any will do."""
    if position >= requirements.carried:
        return requirements.types[position] if position < len(requirements.types) else None
    match inputs[position]:
        case Value(type=kind):
            return kind
        case ScalarInput(kind=number):
            return fixed(tensor_type(NUMBERS[number]))
    return None


def as_required(
    ctx: LoweringContext, requirements: SubgraphRequirements, value: Lowered, wanted: ResultType
) -> Lowered:
    """Convert an output of a subgraph: required numbers become tensors, and aliases of inputs are copied."""
    if isinstance(value, Tensor):
        root = ctx.builder.root(value.name)
        if ctx.builder.producer(root) is None and not (
            requirements.views and _is_view(ctx, value.name, root)
        ):
            return ctx.pointwise(value.at, wanted or fixed(value.type), "output")
        return value
    if wanted is None or value is None:
        return value
    if not isinstance(value, Expr | Term | int | float):
        raise ctx.error(f"a subgraph cannot return {value!r} as a tensor")
    number = ctx.number(value, wanted.dtype)
    return ctx.pointwise(lambda axes: number, wanted, "output")


def output_memory_copy(builder: GraphBuilder, returned: Tensor) -> Mapping[str, TensorType]:
    """Layout of the copy in whose memory a returned tensor lies, if a rule made one; else empty.

    Eager copies the whole storage there, so the result starts at the original's offset, from which AOTAutograd
    regenerates output views.
    """
    owner, start = builder.owner(returned)
    if not builder.has_traced_offset(owner.name):
        return {}
    layout = replace(owner.type.layout, offset=builder.symbols.size(start))
    return {owner.name: fixed(replace(owner.type, layout=layout))}


def _is_view(ctx: LoweringContext, name: str, root: str) -> bool:
    """True when a value is derived from its root by views only."""
    while name != root:
        view = ctx.builder.producer(name)
        if not isinstance(view, View) or not view.aliases:
            return False
        name = view.base
    return True


def _same_strides(a: TensorType, b: TensorType) -> bool:
    """True when the strides agree in each dimension of more than one element."""
    if any(size == 0 for size in a.shape):
        return True
    pairs = zip(a.shape, a.layout.strides, b.layout.strides, strict=True)
    return a.shape == b.shape and all(size == 1 or x == y for size, x, y in pairs)


def with_fixed_outputs(
    operations: Sequence[Operation], outputs: Sequence[Output], wanted: Mapping[str, TensorType]
) -> tuple[Operation, ...]:
    """Fix the layouts of returned values, and of memory that they lie in, to eager's; ``wanted`` maps value names
    to types."""
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


def check_sizes(ctx: LoweringContext) -> None:
    """Raise where a result has an unbacked size to which the rule gave no value."""
    if not ctx.unbacked:
        return
    symbols = ctx.builder.symbols
    shapes = (size for kind in ctx.outputs if kind is not None for size in kind.shape)
    named = frozenset[str]().union(*map(free_symbols, shapes))
    if missing := {name for name in named if symbols.is_unbacked(name)} - ctx.builder.bound:
        raise ctx.error(f"the rule for {ctx.origin.operation} does not define {', '.join(sorted(missing))}")
