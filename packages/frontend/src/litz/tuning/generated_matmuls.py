"""Which products of matrices of a graph are better generated, with what surrounds them, than called: both are timed."""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable, Mapping
from functools import partial

import torch

from litz.host.launch_dependencies import checks_values, indirect_indices
from litz.host.load import HostFunction
from litz.timing import Timer
from litz.tuning.matmul_choices import nodes_of, worth_generating
from litz_ir.contraction import CONVOLUTIONS, MATMULS, matmul_arguments
from litz_ir.loops import (
    ContractionCall,
    Input,
    LoopGraph,
    Operation,
    Ref,
    ScalarInput,
    TensorType,
    Value,
    extract_subgraph,
)
from litz_ir.plan import Kernel, Plan, kernels_in
from litz_ir.symbols import Size, SymbolTable, symbol
from litz_lowering import torch_dtype
from litz_scheduler.library import ATTENTIONS, GRADIENTS

log = logging.getLogger("litz")

ALL_MATMULS = frozenset({"all"})
ROUNDS = 7

SETTLED = 3
"""Calls after which what is tuned while it is called runs as it will."""

Planned = Callable[[LoopGraph, frozenset[str]], Plan]
"""The plan of a graph in which these products are generated."""


def faster_generated(
    graph: LoopGraph,
    planned: Planned,
    loaded: Callable[[Plan], HostFunction],
    tuned: Callable[[Plan], HostFunction],
    sample: Timer,
    has_time: Callable[[], bool],
) -> frozenset[str]:
    """The products of ``graph``, as the scheduler's option ``generated_matmuls`` takes them, that take less time where
    they are generated. Each is run with its surroundings, on numbers made up, at the sizes with which the graph was
    captured; what is not timed while ``has_time`` stays a call. What the library wins closely gets another chance with
    the tiles that ``tuned`` finds while it is called."""
    library, generated = planned(graph, frozenset()), planned(graph, ALL_MATMULS)

    ends = _grouped_rows(graph).keys()

    def makes_ends(operation: Operation) -> bool:
        # Where groups of rows end is made up as it is: numbers made up would not give any such.
        return any(value.name in ends for value in operation.results)

    def seconds(
        plan: Plan, steps: tuple[int, ...], *, load: Callable[[Plan], HostFunction] = loaded
    ) -> float:
        nodes = {name for position in steps for name in nodes_of(plan.steps[position])}
        some = extract_subgraph(graph, lambda each: _node(each) in nodes and not makes_ends(each), "part")
        if some is None or not has_time():
            return math.inf
        try:
            own = planned(some, frozenset() if plan is library else ALL_MATMULS)
            # Numbers that are made up are no indices.
            if any(map(_depends_on_numbers, kernels_in(own))):
                return math.inf
            return _median(load(own), some, sample)
        except Exception as error:
            log.debug("litz: a part of %s is not timed: %s", graph.name, error)
            return math.inf

    return worth_generating(library, generated, seconds, partial(seconds, load=tuned))


def may_be_generated(graph: LoopGraph) -> bool:
    """True for a graph with products of matrices, convolutions, attention or gradients of such that are called."""
    known = {*MATMULS, *CONVOLUTIONS, *ATTENTIONS, *GRADIENTS}
    return any(isinstance(each, ContractionCall) and each.target in known for each in graph.operations)


def _node(operation: Operation) -> str:
    return operation.origin.node or operation.name


def _median(call: HostFunction, graph: LoopGraph, sample: Timer) -> float:
    """The median of the seconds of a call."""
    rows = _grouped_rows(graph)
    given = [_given(each, rows, graph.symbols) for each in graph.inputs]

    def run() -> None:
        call(list(given))

    for _ in range(SETTLED):
        run()
    return statistics.median(sample(run) for _ in range(ROUNDS))


def _depends_on_numbers(kernel: Kernel) -> bool:
    """True where what a kernel is given says whether it fails, or where it reads or writes, but for places that are
    brought into bounds."""
    return checks_values(kernel) or any(place.check != "clamped" for place in indirect_indices(kernel))


def _grouped_rows(graph: LoopGraph) -> Mapping[str, Size]:
    """What lists where groups of rows end, by name, and how many rows there are."""
    types = {name: value.type for name, value in graph.values().items()}
    found: dict[str, Size] = {}
    for each in graph.operations:
        if isinstance(each, ContractionCall) and each.target in MATMULS:
            given = matmul_arguments(each.target, each.arguments, each.attributes)
            a, ends = given.get("a"), given.get("offsets")
            if type(a) is Ref and type(ends) is Ref:
                found[ends.name] = types[a.name].shape[0]
    return found


def _given(argument: Input, rows: Mapping[str, Size], symbols: SymbolTable) -> torch.Tensor | int | float:
    """What a part is called with: sizes as they were when the graph was captured, and tensors of such sizes; ``rows``
    of what lists where groups of them end."""
    if isinstance(argument, ScalarInput):
        assert argument.symbol is not None
        size = symbols.hint(symbol(argument.symbol))
        return size if argument.kind == "int" else float(size)
    assert isinstance(argument, Value)
    if argument.name in rows:
        return _even(argument.type, symbols.hint(rows[argument.name]), symbols)
    return _made_up(argument.type, symbols)


def _even(type_: TensorType, rows: int, symbols: SymbolTable) -> torch.Tensor:
    """The ends of groups of rows that are equally large."""
    groups = symbols.hint(type_.shape[0])
    ends = torch.arange(1, groups + 1, device=type_.device.kind) * rows // max(groups, 1)
    return ends.to(torch_dtype(type_.dtype))


def _made_up(type_: TensorType, symbols: SymbolTable) -> torch.Tensor:
    """A tensor of a type: normal numbers, or small integers; torch's own random streams stay where they are."""
    dtype, device = torch_dtype(type_.dtype), torch.device(type_.device.kind)
    shape, strides = (tuple(map(symbols.hint, sizes)) for sizes in (type_.shape, type_.layout.strides))
    reach = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True) if size)
    own = torch.Generator(device)
    if dtype.is_floating_point:
        memory = torch.randn(reach, device=device, generator=own).to(dtype)
    else:
        memory = torch.randint(0, 2, (reach,), device=device, generator=own).to(dtype)
    return memory.as_strided(shape, strides)
