"""Strategies: ways to run a contraction other than by the routine that is called, priced next to one another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from litz_ir.contraction import ConvolutionCall, convolution_call
from litz_ir.fused import Decision, Reason
from litz_ir.loops import ContractionCall, LoopGraph, Operation, Pointwise, Reduction, Value, View
from litz_ir.passes import PassContext
from litz_ir.target import Capabilities, DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.cost_model import CostModel, ThresholdCosts
from litz_scheduler.analysis.graph_facts import output_names, readers_by_value


class Prices(NamedTuple):
    """Seconds of a strategy and of the call that it replaces. What both have in common may be left out of both."""

    strategy: float
    """Seconds of the operations that replace the call."""
    call: float
    """Seconds of the call."""


class Choice(NamedTuple):
    """A decision about a result of a call."""

    result: str
    """The name of the result."""
    verdict: str
    """``generate`` for loops, ``pad`` for a call of padded operands, ``call`` for another call."""
    reason: Reason
    """The reason that ``explain`` shows."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A strategy that computes what a call does."""

    choices: tuple[Choice, ...]
    """The decisions that taking it records."""
    rewrite: Callable[[], Iterable[Operation]]
    """Returns the operations that replace the call."""
    prices: Prices | None = None
    """``None`` where it is taken without a comparison, such as one that an option asks for."""
    note: str = ""
    """Details for the explanation of the choices."""


class Strategy(Protocol):
    """A way to run some contraction calls."""

    @property
    def name(self) -> str:
        """The name by which a cost model tells it from others."""

    def candidate(self, call: ContractionCall, rewriting: Rewriting) -> Candidate | None:
        """Return the strategy for a call; ``None`` where it does not compute what the call does, or has no price."""


class Rewriting:
    """A graph whose calls are replaced, in order."""

    def __init__(self, graph: LoopGraph, context: PassContext) -> None:
        self.graph = graph
        """The graph before the replacement."""
        self.context = context
        """The devices and their capabilities."""
        self.operations: list[Operation] = []
        """The operations emitted so far."""
        self.values = dict(graph.values())
        """The values of the graph, and of the operations emitted so far, by name."""
        self.producers = {value.name: each for each in graph.operations for value in each.results}
        """The operation of each value, likewise."""
        self.made: set[str] = set()
        """Names of operands that strategies have emitted."""
        self.computed: set[str] = set()
        """Values that loops of the graph compute, of the operations so far, and their views."""
        self._convolution: tuple[ContractionCall, ConvolutionCall | None] | None = None

    @cached_property
    def readers(self) -> Mapping[str, Sequence[Operation]]:
        """The operations that read each value of the graph."""
        return readers_by_value(self.graph)

    @cached_property
    def returned(self) -> frozenset[str]:
        """The values that the graph returns."""
        return frozenset(output_names(self.graph))

    @cached_property
    def in_memory(self) -> frozenset[str]:
        """The values that outputs, library calls or other operations without a generated kernel read.

        A read of a view counts for its base.
        """
        wanted = set(self.returned)
        for operation in reversed(self.graph.operations):
            if isinstance(operation, View):
                if operation.name in wanted:
                    wanted.add(operation.base)
            elif not isinstance(operation, Pointwise | Reduction):
                wanted.update(operation.reads)
        return frozenset(wanted)

    def convolution(self, call: ContractionCall) -> ConvolutionCall | None:
        """Return the convolutions that a call computes; ``None`` for other calls."""
        if self._convolution is None or self._convolution[0] is not call:
            self._convolution = call, convolution_call(call, self.values)
        return self._convolution[1]

    def machine(self, value: Value) -> Capabilities | None:
        """Return the device that a value is on; ``None`` for one without a target."""
        return self.context.machine(value.type.device)

    def gpu(self, value: Value) -> Capabilities | None:
        """Return the GPU that a value is on; ``None`` for another device."""
        machine = self.machine(value)
        return machine if machine is not None and machine.is_gpu else None

    def gpu_of(self, call: ConvolutionCall) -> Capabilities | None:
        """Return the GPU that computes convolutions; ``None`` for another device, or without one."""
        return self.gpu(call.convolutions[0].result) if call.convolutions else None

    def emit(self, operation: Operation) -> None:
        """Add an operation to the emitted ones."""
        self.operations.append(operation)
        self._define(operation)

    def exchange(self, old: Operation, *new: Operation) -> None:
        """Replace an emitted operation."""
        position = self.operations.index(old)
        self.operations[position : position + 1] = new
        for each in new:
            self._define(each)

    def _define(self, operation: Operation) -> None:
        for value in operation.results:
            self.values[value.name] = value
            self.producers[value.name] = operation

    def pass_over(self, operation: Operation) -> None:
        """Take note of an operation of the graph before its replacement."""
        if isinstance(operation, Pointwise) or (
            isinstance(operation, View) and operation.base in self.computed
        ):
            self.computed.update(value.name for value in operation.results)


@dataclass(frozen=True, slots=True)
class ChooseStrategies:
    """Replace each contraction call by the strategy that saves most time, if one saves any.

    Calls that a strategy leaves, or makes, are offered to the others.
    """

    strategies: tuple[Strategy, ...]
    """The strategies. The first of those without prices that applies is taken, before all that have prices."""
    name: str
    """The name of the pass."""
    costs: CostModel = field(default_factory=ThresholdCosts)
    """The cost model, which may override prices."""
    devices: DeviceClass | None = None
    """Devices of the graphs that the pass runs over; ``None`` for all."""
    ulp: int = 64
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        rewriting = Rewriting(data, context)
        for operation in data.operations:
            rewriting.pass_over(operation)
            self._emit(operation, rewriting, self.strategies)
        operations = tuple(rewriting.operations)
        return data if operations == data.operations else data.with_operations(operations)

    def _emit(self, operation: Operation, rewriting: Rewriting, strategies: tuple[Strategy, ...]) -> None:
        """Emit an operation, or what replaces it."""
        chosen = None
        if isinstance(operation, ContractionCall):
            chosen = self._chosen(operation, rewriting, strategies)
        if chosen is None:
            rewriting.emit(operation)
            return
        strategy, candidate = chosen
        others = tuple(each for each in strategies if each is not strategy)
        for each in candidate.rewrite():
            self._emit(each, rewriting, others)

    def _chosen(
        self, call: ContractionCall, rewriting: Rewriting, strategies: tuple[Strategy, ...]
    ) -> tuple[Strategy, Candidate] | None:
        """Return the strategy for a call, and record what it decides; ``None`` where the call remains."""
        priced: list[tuple[float, Strategy, Candidate, Prices]] = []
        for strategy in strategies:
            candidate = strategy.candidate(call, rewriting)
            if candidate is None:
                continue
            given = candidate.prices or Prices(0.0, 0.0)
            own = self.costs.contraction_seconds(strategy.name, call, given.strategy)
            if own == math.inf:
                continue
            if candidate.prices is None:
                self._decide(candidate, candidate.note, rewriting)
                return strategy, candidate
            other = self.costs.contraction_seconds("call", call, given.call)
            priced.append((other - own, strategy, candidate, Prices(own, other)))
        if not priced:
            return None
        notes = [
            f"{strategy.name} {_time(p.strategy)}, the call {_time(p.call)}" for _, strategy, _, p in priced
        ]
        saved, strategy, candidate, _ = max(priced, key=lambda each: each[0])
        if saved <= 0:
            rewriting.context.decide(
                Decision("library", call.name, "call", reasons.LIBRARY_CHEAPEST, note="; ".join(notes))
            )
            return None
        self._decide(candidate, "; ".join(filter(None, (candidate.note, *notes))), rewriting)
        return strategy, candidate

    def _decide(self, candidate: Candidate, note: str, rewriting: Rewriting) -> None:
        for choice in candidate.choices:
            rewriting.context.decide(
                Decision("library", choice.result, choice.verdict, choice.reason, note=note)
            )


def _time(seconds: float) -> str:
    """Return seconds as microseconds, with three digits."""
    return f"{seconds * 1e6:.3g} us"
