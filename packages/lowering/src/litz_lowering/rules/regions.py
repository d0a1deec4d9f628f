"""Higher-order operators (HOPs) as regions: control flow and repeated subgraphs.

Operands stay on their devices, which those of one region may differ in: a counter of the CPU beside tensors of a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from litz_ir.loops import (
    Argument,
    Input,
    Layout,
    LoopGraph,
    Ref,
    Region,
    RegionKind,
    ScalarInput,
    TensorType,
    Value,
    View,
    contiguous,
    span,
    tensor_type,
)
from litz_ir.scalar import Scalar
from litz_ir.symbols import Size, SymbolInfo, substitute, symbol
from litz_lowering.contexts.context import Lowered, LoweringContext, ResultType, Tensor
from litz_lowering.contexts.outputs import NUMBERS, flatten
from litz_lowering.contexts.registry import rule
from litz_lowering.contexts.results import computed_positions, leaf_type, leaf_types, nested_results
from litz_lowering.contexts.subgraphs import SubgraphRequirements, missing_symbols
from litz_lowering.contexts.values import Subgraph

Operands = tuple[Lowered, ...]


@rule("higher_order.cond", moves=True)
def cond(
    ctx: LoweringContext, condition: Lowered, true: Subgraph, false: Subgraph, operands: Operands
) -> Lowered:
    """One of two functions of the operands, selected at run time."""
    requirements = SubgraphRequirements(types=tuple(map(_static, leaf_types(ctx))))
    graphs = [ctx.subgraphs.lower(each, requirements) for each in (true, false)]
    returned_positions = computed_positions(ctx)
    infos = _captured_symbols(ctx, graphs)
    arguments = (condition, *_conformed(ctx, operands, graphs[0].inputs), *_symbols(infos))
    region = _region(
        ctx,
        "cond",
        [ctx.subgraphs.tailored(g, returned_positions, infos) for g in graphs],
        arguments,
        returned_positions,
    )
    return nested_results(ctx, region)


@rule("higher_order.invoke_subgraph", moves=True)
def invoke_subgraph(ctx: LoweringContext, subgraph: Subgraph, identifier: str, *operands: Lowered) -> Lowered:
    """A function that is compiled once and called several times."""
    return _invoke(ctx, subgraph, operands)


@rule("higher_order.strict_mode", moves=True)
def strict_mode(ctx: LoweringContext, subgraph: Subgraph, operands: Operands) -> Lowered:
    """A function that was traced in strict mode, which makes no difference after tracing."""
    return _invoke(ctx, subgraph, operands)


@rule("higher_order.hints_wrapper", moves=True)
def hints_wrapper(
    ctx: LoweringContext, subgraph: Subgraph, operands: Operands, keywords: object, hints: object
) -> Lowered:
    """A function with hints for other backends, which are ignored."""
    return _invoke(ctx, subgraph, operands)


def _invoke(ctx: LoweringContext, subgraph: Subgraph, operands: Operands) -> Lowered:
    """Call a function; results that are operands or views of them are computed outside the region."""
    graph = ctx.subgraphs.lower(subgraph, SubgraphRequirements(types=_number_types(ctx), views=True))
    views_of_operands = dict(_views_of_inputs(graph))
    returned_positions = tuple(
        position for position in computed_positions(ctx) if position not in views_of_operands
    )
    infos = _captured_symbols(ctx, [graph])
    arguments = (*_conformed(ctx, operands, graph.inputs), *_symbols(infos))
    region = _region(
        ctx,
        "invoke",
        [ctx.subgraphs.tailored(graph, returned_positions, infos)],
        arguments,
        returned_positions,
    )
    for position, (number, views) in views_of_operands.items():
        base = operands[number]
        assert isinstance(base, Tensor), "only tensors have views"
        region[position] = _viewed(ctx, base, views, position)
    return nested_results(ctx, region)


@rule("higher_order.while_loop", moves=True)
def while_loop(
    ctx: LoweringContext, condition: Subgraph, body: Subgraph, carried: Operands, others: Operands = ()
) -> Lowered:
    """Repeat the body while the condition is true."""
    return _while(ctx, "while_loop", condition, body, carried, others)


@rule("higher_order.while_loop_stack_output", moves=True)
def while_loop_stack_output(
    ctx: LoweringContext, condition: Subgraph, body: Subgraph, carried: Operands, others: Operands = ()
) -> Lowered:
    """A while loop that returns the values after each step, stacked, as its gradient requires."""
    return _while(ctx, "while_stack", condition, body, carried, others)


def _while(
    ctx: LoweringContext,
    kind: RegionKind,
    condition: Subgraph,
    body: Subgraph,
    carried: Operands,
    others: Operands,
) -> Lowered:
    restrided = _restrided(body, len(carried))
    steps = ctx.subgraphs.lower(body, SubgraphRequirements(carried=len(carried), row_major=restrided))
    (predicate,) = flatten(condition.module.graph.output_node().args[0])
    decides = leaf_type(ctx, getattr(predicate, "meta", {}).get("val", predicate))
    test = ctx.subgraphs.lower(condition, SubgraphRequirements(types=(decides,), row_major=restrided))
    infos = _captured_symbols(ctx, [test, steps])
    operands = _conformed(ctx, (*carried, *others), steps.inputs, len(carried))
    initial, rest = operands[: len(carried)], (*operands[len(carried) :], *_symbols(infos))
    graphs = [ctx.subgraphs.tailored(graph, None, infos) for graph in (test, steps)]
    every = tuple(range(len(carried)))
    row_major = restrided if kind == "while_loop" else ()
    return nested_results(ctx, _region(ctx, kind, graphs, (initial, rest), every, row_major))


@rule("higher_order.scan", moves=True)
def scan(
    ctx: LoweringContext, combine: Subgraph, initial: Operands, along: Operands, others: Operands = ()
) -> Lowered:
    """Carry values along the first dimension of tensors; other results of each step are stacked."""
    return _scan(ctx, combine, initial, along, others)


@rule("higher_order.map_impl", moves=True)
def map_impl(ctx: LoweringContext, function: Subgraph, along: Operands, others: Operands) -> Lowered:
    """A function of each row of tensors, stacked: a scan without carried values."""
    return _scan(ctx, function, (), along, others)


def _scan(
    ctx: LoweringContext, combine: Subgraph, initial: Operands, along: Operands, others: Operands
) -> Lowered:
    count = len(initial)
    restrided = _restrided(combine, count)
    graph = ctx.subgraphs.lower(combine, SubgraphRequirements(carried=count, row_major=restrided))
    returned_positions = tuple(sorted({*range(count), *computed_positions(ctx)}))
    infos = _captured_symbols(ctx, [graph])
    inputs = graph.inputs
    carried = _conformed(ctx, initial, inputs, count)
    rows = tuple(
        _conformed_rows(ctx, tensor, into) for tensor, into in zip(along, inputs[count:], strict=False)
    )
    rest = (*_conformed(ctx, others, inputs[count + len(along) :]), *_symbols(infos))
    tailored = ctx.subgraphs.tailored(graph, returned_positions, infos)
    arguments = (carried, rows, rest)
    return nested_results(ctx, _region(ctx, "scan", [tailored], arguments, returned_positions, restrided))


def _restrided(body: Subgraph, carried: int) -> tuple[int, ...]:
    """Positions of carried values that a step returns with other strides than it was traced with, or that overlap.

    Gradients are such values: those of a sum are expanded, those of a transposed tensor transposed. All steps run the
    same kernels, so these values are in row-major order.
    """
    graph = body.module.graph
    given = [node.meta.get("val") for node in graph.find_nodes(op="placeholder")][:carried]
    returned = [getattr(leaf, "meta", {}).get("val") for leaf in flatten(graph.output_node().args[0])]
    return tuple(
        position
        for position, (one, other) in enumerate(zip(given, returned, strict=False))
        if isinstance(one, torch.Tensor)
        and not (isinstance(other, torch.Tensor) and one.stride() == other.stride() and 0 not in one.stride())
    )


# --- operands --------------------------------------------------------------------------------------------


def _conformed(
    ctx: LoweringContext, operands: Operands, inputs: Sequence[Input], carried: int = 0
) -> tuple[Lowered, ...]:
    """Copy operands to the layouts that the subgraph was traced with; carried numbers become tensors."""
    made: list[Lowered] = []
    for position, (operand, into) in enumerate(zip(operands, inputs, strict=False)):
        if isinstance(operand, Tensor) and isinstance(into, Value):
            made.append(_in_layout(ctx, operand, into.type))
        elif position < carried and isinstance(into, ScalarInput):
            made.append(_number_tensor(ctx, operand, into))
        else:
            made.append(operand)
    return tuple(made)


def _in_layout(ctx: LoweringContext, operand: Tensor, wanted: TensorType) -> Tensor:
    """Copy the operand where its strides differ from those that the subgraph was traced with."""
    if 0 in operand.shape or _agree(operand.shape, operand.type.layout.strides, wanted.layout.strides):
        return operand
    kind = TensorType(operand.dtype, operand.shape, replace(wanted.layout, fixed=True), operand.device)
    return ctx.pointwise(operand.load, kind, f"{operand.name}_laid_out")


def _conformed_rows(ctx: LoweringContext, operand: Lowered, into: Input) -> Lowered:
    """Copy a tensor where its rows' strides differ from those that the subgraph was traced with."""
    assert isinstance(operand, Tensor) and isinstance(into, Value), "scans go along tensors"
    strides = operand.type.layout.strides
    if _agree(operand.shape[1:], strides[1:], into.type.layout.strides):
        return operand
    row = span(into.type.shape, into.type.layout)
    layout = Layout((row, *into.type.layout.strides), 0, fixed=True)
    kind = TensorType(operand.dtype, operand.shape, layout, operand.device)
    return ctx.pointwise(operand.load, kind, f"{operand.name}_laid_out")


def _agree(shape: Sequence[Size], a: Sequence[Size], b: Sequence[Size]) -> bool:
    return all(size == 1 or x == y for size, x, y in zip(shape, a, b, strict=True))


def _number_tensor(ctx: LoweringContext, operand: Any, into: ScalarInput) -> Tensor:
    kind = tensor_type(NUMBERS[into.kind])
    return ctx.pointwise(lambda axes: ctx.number(operand, kind.dtype), kind, into.name)


def _captured_symbols(ctx: LoweringContext, graphs: Sequence[LoopGraph]) -> tuple[SymbolInfo, ...]:
    """Symbols that the subgraphs capture from the graph."""
    found = {info.name: info for graph in graphs for info in missing_symbols(graph)}
    for info in found.values():
        ctx.builder.symbols.adopt(info)
    return tuple(found.values())


def _symbols(infos: Sequence[SymbolInfo]) -> Iterator[Lowered]:
    for info in infos:
        if info.kind == "int":
            yield symbol(info.name)
        else:
            yield Scalar(info.name, NUMBERS[info.kind])


# --- results --------------------------------------------------------------------------------------------


def _static(kind: ResultType) -> ResultType:
    """Required type of a subgraph's output: None where it uses symbols, which the subgraph may not have."""
    if kind is None:
        return None
    return kind if all(isinstance(size, int) for size in (*kind.shape, *kind.layout.strides)) else None


def _number_types(ctx: LoweringContext) -> tuple[ResultType, ...]:
    """Types of the leaves that are numbers; None for tensors."""
    leaves = flatten(ctx.node.meta["val"])
    return tuple(None if isinstance(leaf, torch.Tensor) else leaf_type(ctx, leaf) for leaf in leaves)


def _region(
    ctx: LoweringContext,
    kind: RegionKind,
    graphs: Sequence[LoopGraph],
    arguments: Lowered,
    returned_positions: tuple[int, ...],
    row_major: tuple[int, ...] = (),
) -> dict[int, Lowered]:
    """Append one region and return its results by position of the leaf, in eager's layout.

    The region itself returns those at ``row_major`` in row-major order.
    """
    types = leaf_types(ctx)
    values: dict[int, Value] = {}
    for position in returned_positions:
        wanted = types[position]
        assert wanted is not None, "a returned value has a type"
        if position in row_major:
            returned = replace(wanted, layout=contiguous(wanted.shape, fixed=True))
        else:
            returned = wanted
        values[position] = ctx.value(returned, ctx.position(position))
    made: Argument = ctx.argument(arguments)
    assert isinstance(made, tuple)
    ctx.append(
        Region(
            results=tuple(values.values()),
            kind=kind,
            subgraphs=tuple(graphs),
            arguments=made,
            origin=ctx.origin,
        )
    )
    return {
        position: _in_layout(ctx, Tensor(value), types[position] or value.type)
        for position, value in values.items()
    }


# --- views of operands ----------------------------------------------------------------------------------


def _views_of_inputs(graph: LoopGraph) -> Iterator[tuple[int, tuple[int, tuple[View, ...]]]]:
    """Yield (position of the output, (position of the input, views that lead from it to the output))."""
    makers = {value.name: each for each in graph.operations for value in each.results}
    inputs = {each.name: k for k, each in enumerate(graph.inputs) if isinstance(each, Value)}
    for position, output in enumerate(graph.outputs):
        if not isinstance(output, Ref):
            continue
        name, views = output.name, []
        while isinstance(maker := makers.get(name), View) and maker.aliases:
            views.append(maker)
            name = maker.base
        if name in inputs:
            yield position, (inputs[name], tuple(reversed(views)))


def _viewed(ctx: LoweringContext, base: Tensor, views: Sequence[View], position: int) -> Tensor:
    for view in views:

        def index(axes: tuple[Size, ...], view: View = view) -> tuple[Size, ...]:
            mapping = dict(zip((axis.name for axis in view.axes), axes, strict=True))
            return tuple(substitute(term, mapping) for term in view.index)

        base = ctx.view(base, index, view.results[0].type, name=f"{position}_view")
    return base
