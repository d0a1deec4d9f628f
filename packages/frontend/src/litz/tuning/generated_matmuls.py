"""Measurement of the matmuls of a graph that are faster generated, fused with prologue and epilogue, than called."""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable, Mapping
from functools import partial

import torch

from litz.host.emit.launch_dependencies import checks_values, indirect_indices
from litz.host.runtime.load import HostFunction
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

_ALL_MATMULS = frozenset({"all"})
"""Value of the option ``generated_matmuls`` that generates every matmul."""

_ROUNDS = 7
"""Timed calls of each subgraph."""

_SETTLED = 3
"""Calls after which a graph that is tuned during its calls has its final schedule."""

Planned = Callable[[LoopGraph, frozenset[str]], Plan]
"""Function that returns the plan of a graph in which these matmuls are generated."""


def faster_generated(
    graph: LoopGraph,
    planned: Planned,
    loaded: Callable[[Plan], HostFunction],
    tuned: Callable[[Plan], HostFunction],
    sample: Timer,
    has_time: Callable[[], bool],
) -> frozenset[str]:
    """Return the matmuls of ``graph`` that are faster generated, as the option ``generated_matmuls`` names them.

    Each runs with the operations around it, on random inputs, at the sizes of the capture. A matmul that is not
    timed while ``has_time`` stays a library call. Where the library is slightly faster, the schedules that ``tuned``
    finds during calls are timed too.
    """
    library, generated = planned(graph, frozenset()), planned(graph, _ALL_MATMULS)

    ends = _grouped_rows(graph).keys()

    def makes_ends(operation: Operation) -> bool:
        # Offsets of groups are inputs of the subgraph: computed from random inputs they would not be valid.
        return any(value.name in ends for value in operation.results)

    def seconds(
        plan: Plan, steps: tuple[int, ...], *, load: Callable[[Plan], HostFunction] = loaded
    ) -> float:
        nodes = {name for position in steps for name in nodes_of(plan.steps[position])}
        some = extract_subgraph(graph, lambda each: _node(each) in nodes and not makes_ends(each), "matmul")
        if some is None or not has_time():
            return math.inf
        try:
            own = planned(some, frozenset() if plan is library else _ALL_MATMULS)
            # Random inputs are no valid indices.
            if any(map(_depends_on_numbers, kernels_in(own))):
                return math.inf
            return _median(load(own), some, sample)
        except Exception as error:
            log.debug("litz: a matmul of %s is not timed: %s", graph.name, error)
            return math.inf

    return worth_generating(library, generated, seconds, partial(seconds, load=tuned))


def may_be_generated(graph: LoopGraph) -> bool:
    """Report whether a graph calls a matmul, convolution, attention or a gradient of one."""
    known = {*MATMULS, *CONVOLUTIONS, *ATTENTIONS, *GRADIENTS}
    return any(isinstance(each, ContractionCall) and each.target in known for each in graph.operations)


def _node(operation: Operation) -> str:
    """Return the node that an operation came from."""
    return operation.origin.node or operation.name


def _median(call: HostFunction, graph: LoopGraph, sample: Timer) -> float:
    """Return the median time of a call, in seconds."""
    rows = _grouped_rows(graph)
    arguments = [_argument(each, rows, graph.symbols) for each in graph.inputs]

    def run() -> None:
        call(list(arguments))

    for _ in range(_SETTLED):
        run()
    return statistics.median(sample(run) for _ in range(_ROUNDS))


def _depends_on_numbers(kernel: Kernel) -> bool:
    """Report whether inputs decide a kernel's addresses, unclamped, or whether it fails."""
    return checks_values(kernel) or any(index.check != "clamped" for index in indirect_indices(kernel))


def _grouped_rows(graph: LoopGraph) -> Mapping[str, Size]:
    """Return the number of rows of each grouped GEMM, by the name of its offsets."""
    types = {name: value.type for name, value in graph.values().items()}
    found: dict[str, Size] = {}
    for each in graph.operations:
        if isinstance(each, ContractionCall) and each.target in MATMULS:
            arguments = matmul_arguments(each.target, each.arguments, each.attributes)
            a, ends = arguments.get("a"), arguments.get("offsets")
            if type(a) is Ref and type(ends) is Ref:
                found[ends.name] = types[a.name].shape[0]
    return found


def _argument(argument: Input, rows: Mapping[str, Size], symbols: SymbolTable) -> torch.Tensor | int | float:
    """Return an example argument: a size of the capture, or a tensor of such sizes; ``rows`` as of
    :func:`_grouped_rows`."""
    if isinstance(argument, ScalarInput):
        assert argument.symbol is not None
        size = symbols.hint(symbol(argument.symbol))
        return size if argument.kind == "int" else float(size)
    assert isinstance(argument, Value)
    if argument.name in rows:
        return _equal_groups(argument.type, symbols.hint(rows[argument.name]), symbols)
    return _random_tensor(argument.type, symbols)


def _equal_groups(type_: TensorType, rows: int, symbols: SymbolTable) -> torch.Tensor:
    """Return offsets of groups of equal size."""
    groups = symbols.hint(type_.shape[0])
    ends = torch.arange(1, groups + 1, device=type_.device.kind) * rows // max(groups, 1)
    return ends.to(torch_dtype(type_.dtype))


def _random_tensor(type_: TensorType, symbols: SymbolTable) -> torch.Tensor:
    """Return a tensor of normal numbers, or of zeros and ones; torch's own generators do not advance."""
    dtype, device = torch_dtype(type_.dtype), torch.device(type_.device.kind)
    shape, strides = (tuple(map(symbols.hint, sizes)) for sizes in (type_.shape, type_.layout.strides))
    reach = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True) if size)
    own = torch.Generator(device)
    if dtype.is_floating_point:
        memory = torch.randn(reach, device=device, generator=own).to(dtype)
    else:
        memory = torch.randint(0, 2, (reach,), device=device, generator=own).to(dtype)
    return memory.as_strided(shape, strides)
