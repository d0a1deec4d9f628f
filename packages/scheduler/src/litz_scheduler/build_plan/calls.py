"""Steps of calls, sorts and higher-order operators, with copies of arguments into the layouts that they require."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from litz_ir.errors import ScheduleError
from litz_ir.fused import Decision, Reason
from litz_ir.loops import (
    Call,
    ComplexValue,
    ContractionCall,
    Extern,
    LoopGraph,
    Ref,
    Region,
    Sort,
    Value,
    is_dense,
    rename_reads,
)
from litz_ir.plan import CallStep, RegionStep
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import type_bytes
from litz_scheduler.analysis.graph_facts import dense_type, output_names, overwritten_names, same_strides
from litz_scheduler.build_plan.forms import Item, Subgraph
from litz_scheduler.build_plan.launches import LaunchBuilder
from litz_scheduler.build_plan.scheduling import PlanNames
from litz_scheduler.build_plan.sizes import Sizes, symbols_of
from litz_scheduler.build_plan.values import ValuePlacements


class Calls:
    """Append the steps of operations that the host runs to ``items``, in the order of calls of the methods."""

    def __init__(
        self,
        graph: LoopGraph,
        values: ValuePlacements,
        launches: LaunchBuilder,
        sizes: Sizes,
        items: list[Item],
        names: PlanNames,
    ) -> None:
        self._values = values
        self._launches = launches
        self._sizes = sizes
        self._items = items
        self._names = names
        self._subgraphs: dict[int, Subgraph] = {}
        self._logical = graph.values()
        self._used = (output_names(graph) | overwritten_names(graph)).union(
            *(each.reads for each in graph.operations)
        )

    def call(self, call: Call) -> None:
        """Append the step of a call, after copies of its arguments where it requires another layout."""
        overwritten = dict(call.mutates)
        call, copies = self._with_layouts(call)
        results = self._wanted(call)
        unpack = call.unpack or len(results) > 1
        pairs = tuple(v.name for v in call.results if isinstance(v, ComplexValue) and v.name in results)
        self._items.append(
            CallStep(
                call.target, call.arguments, call.attributes, results, unpack, _reason(call), call.origin, pairs
            )
        )  # fmt: skip
        bases = {result: read for read, result in call.mutates} | dict(call.aliases)
        for value in call.results:
            if value.replaces not in copies:
                self._values.returned(value, bases.get(value.name))
            if value.name in results:
                self._items += self._sizes.of(value)
        for name, version in overwritten.items():
            if name in copies:
                self._launches.copy(copies[name], self._logical[version])

    def sort(self, sort: Sort) -> None:
        """Append the step of a sort, which runs as the extern routine ``sort``."""
        arguments = (Ref(sort.source), sort.dimension, sort.descending, sort.stable)
        results = tuple(value.name for value in sort.results)
        why = reasons.LIBRARY_NO_TEMPLATE.sentence
        self._items.append(CallStep("sort", arguments, (), results, True, why, sort.origin))
        for value in sort.results:
            self._values.returned(value)

    def region(self, region: Region) -> None:
        """Append the step of a higher-order operator, after the subgraphs that it runs.

        Raises ``ScheduleError`` for an argument that must be copied into eager's layout and has gaps there.
        """
        plans = tuple(map(self._planned, region.subgraphs))
        copies: dict[str, str] = {}
        for name in region.reads:
            value = self._logical.get(name)
            if value is None or same_strides(value.type, self._values.type(name).layout):
                continue
            if not is_dense(value.type.shape, value.type.layout):
                raise ScheduleError(
                    f"%{name} must be copied into eager's layout, which has gaps", node=region.name,
                    origin=region.origin, hint="the higher-order operator falls back to eager",
                )  # fmt: skip
            copies[name] = self._copy_for(region, value)
        renamed = rename_reads(region, copies)
        assert isinstance(renamed, Region)
        results = tuple(value.name for value in region.results)
        self._items.append(RegionStep(region.kind, plans, renamed.arguments, results, region.origin))
        for value in region.results:
            self._values.returned(value)
            self._items += self._sizes.of(value)

    def _planned(self, graph: LoopGraph) -> str:
        """Return the name of a subgraph's plan; the first use of a subgraph appends it to the items."""
        subgraph = self._subgraphs.get(id(graph))
        if subgraph is None:
            subgraph = self._subgraphs[id(graph)] = Subgraph(self._names.unique(graph.name), graph)
            self._items.append(subgraph)
        return subgraph.name

    def _wanted(self, call: Call) -> tuple[str | None, ...]:
        """Return the names of a call's results, with None for a result that is never read and defines no symbol."""
        returned = [value for value in call.results if value.name not in call.unreturned]
        wanted = {value.name for value in returned if value.name in self._used}
        defined = self._sizes.bound.union(*(symbols_of(value) for value in returned if value.name in wanted))
        for value in returned:
            if not symbols_of(value) <= defined:
                wanted.add(value.name)
                defined |= symbols_of(value)
        return tuple(value.name if value.name in wanted else None for value in returned)

    def _with_layouts(self, call: Call) -> tuple[Call, dict[str, str]]:
        """Replace arguments in an unsuitable layout by copies; return the call, and the copies by argument name."""
        copies: dict[str, str] = {}
        for name in call.reads:
            value = self._logical.get(name)
            if value is None or self._suits(call, value):
                continue
            copies[name] = self._copy_for(call, value)
        renamed = rename_reads(call, copies)
        assert isinstance(renamed, Call)
        return renamed, copies

    def _copy_for(self, reader: Call | Region, value: Value) -> str:
        """Append a copy of ``value`` in the layout that ``reader`` requires, and return the copy's name."""
        exact = isinstance(reader, Call) and reader.layout_requirement == "exact"
        promised = replace(value.type, layout=replace(value.type.layout, fixed=exact))
        copy = Value(f"{value.name}.for.{reader.name}", dense_type(promised))
        self._launches.copy(value.name, copy)
        self._items.append(Decision("plan", value.name, "copy", reasons.COPY_LAYOUT, type_bytes(value.type)))
        return copy.name

    def _suits(self, call: Call, value: Value) -> bool:
        """Return True when the memory layout of a value meets the layout requirement of a call."""
        layout = self._values.type(value.name).layout
        if call.layout_requirement == "dense":
            return is_dense(value.type.shape, layout)
        return call.layout_requirement == "any" or same_strides(value.type, layout)


_ROUTINES: Mapping[str, Reason] = MappingProxyType(
    {
        "linear": reasons.LIBRARY_LINEAR,
        "convolution": reasons.LIBRARY_CONVOLUTION,
        "convolution_relu": reasons.LIBRARY_RELU,
    }
)
"""Reasons for calls of the host's own routines."""


def _reason(call: Call) -> str:
    """Return the reason for which a call runs as a routine of the host, as a sentence."""
    if isinstance(call, Extern):
        return call.reason
    if not isinstance(call, ContractionCall):
        return ""
    return _ROUTINES.get(call.target, reasons.LIBRARY_NO_TEMPLATE).sentence
