"""Which products of matrices of a graph are better generated, with what surrounds them, than called: both are timed."""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable

import torch

from litz.host.load import HostFunction
from litz.host.waits import may_fail
from litz.timing import Sample
from litz.tuning.choices import nodes_of, worth_generating
from litz_ir.errors import LitzError
from litz_ir.loops.nodes import Contraction, LoopGraph, Operation, Value
from litz_ir.loops.part import part
from litz_ir.plan.program import Plan, kernels_in
from litz_lowering.torch_types import torch_dtype
from litz_scheduler.library.generated import PRODUCTS

log = logging.getLogger("litz")

EVERY = frozenset({"all"})
ROUNDS = 7

Planned = Callable[[LoopGraph, frozenset[str]], Plan]
"""The plan of a graph in which these products are generated."""


def better_generated(
    graph: LoopGraph,
    planned: Planned,
    loaded: Callable[[Plan], HostFunction],
    sample: Sample,
    has_time: Callable[[], bool],
) -> frozenset[str]:
    """The products of ``graph``, as the scheduler's option ``generated_products`` takes them, that take less time where
    they are generated. Each is run with its surroundings, on numbers made up; what is not timed while ``has_time``
    stays a call."""
    library, generated = planned(graph, frozenset()), planned(graph, EVERY)

    def seconds(plan: Plan, steps: tuple[int, ...]) -> float:
        nodes = {name for position in steps for name in nodes_of(plan.steps[position])}
        some = part(graph, lambda each: _node(each) in nodes, "part")
        if some is None or not has_time():
            return math.inf
        try:
            own = planned(some, frozenset() if plan is library else EVERY)
            # Numbers that are made up are no indices.
            if any(map(may_fail, kernels_in(own))):
                return math.inf
            return _median(loaded(own), some, sample)
        except (LitzError, torch.OutOfMemoryError) as error:
            log.debug("litz: a part of %s is not timed: %s", graph.name, error)
            return math.inf

    return worth_generating(library, generated, seconds)


def may_be_generated(graph: LoopGraph) -> bool:
    """True for a graph of fixed sizes with products of matrices that are called."""
    fixed = not list(graph.symbols)
    return fixed and any(
        isinstance(each, Contraction) and each.target in PRODUCTS for each in graph.operations
    )


def _node(operation: Operation) -> str:
    return operation.origin.node or operation.name


def _median(call: HostFunction, graph: LoopGraph, sample: Sample) -> float:
    """The median of the seconds of a call."""
    given = [_made_up(each) for each in graph.inputs if isinstance(each, Value)]

    def run() -> None:
        call(list(given))

    run()
    return statistics.median(sample(run) for _ in range(ROUNDS))


def _made_up(value: Value) -> torch.Tensor:
    """A tensor of a value's type: normal numbers, or small integers."""
    type_ = value.type
    dtype, device = torch_dtype(type_.dtype), torch.device(type_.device.kind)
    shape, strides = (
        tuple(int(str(size)) for size in sizes) for sizes in (type_.shape, type_.layout.strides)
    )
    reach = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True) if size)
    if dtype.is_floating_point:
        memory = torch.randn(reach, device=device).to(dtype)
    else:
        memory = torch.randint(0, 2, (reach,), device=device).to(dtype)
    return memory.as_strided(shape, strides)
