"""Graphs and plans between the scheduler's passes round-trip through the interchange form."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_builder import CPU_LIKE, GPU_LIKE
from scheduler_strategies import loop_graphs
from test_scheduler_text import CASES, MACHINES, options_of
from text_tests import Case

from litz_ir import from_text, to_json
from litz_ir.device import CPU
from litz_ir.fused import FusedGraph
from litz_ir.interchange import from_interchange, to_interchange
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import Plan
from litz_ir.target import Capabilities
from litz_scheduler import schedule

FILES = {path.stem: list(found) for path, found in groupby(CASES, key=lambda case: case.path)}


class RoundTrips:
    """A hook that writes and reads what a pass gives, once for each result that differs from the one before."""

    def __init__(self) -> None:
        self.kinds: set[type] = set()
        """Classes that were written."""

    def __call__(self, name: str, before: object, after: Any) -> None:
        if not isinstance(after, LoopGraph | FusedGraph | Plan) or after is before:
            return
        self.kinds.add(type(after))
        found = from_interchange(to_interchange(after))
        assert found == after, name
        # Equality leaves out origins and decisions, the cache's form does not.
        assert to_json(found) == to_json(after), name


@pytest.mark.parametrize("cases", FILES.values(), ids=FILES)
def test_all_that_the_passes_make_of_a_text_case_round_trips(cases: list[Case]) -> None:
    for case in cases:
        machine, *words = case.command[1:]
        graph, hook = from_text(case.source), RoundTrips()
        hook("input", None, graph)
        assert isinstance(graph, LoopGraph)
        schedule(graph, PassContext(dict(MACHINES[machine])), options_of(words), hooks=[hook])
        assert hook.kinds == {LoopGraph, FusedGraph, Plan}


@settings(max_examples=30)
@given(graph=loop_graphs(symbolic=True), machine=st.sampled_from([CPU_LIKE, GPU_LIKE]))
def test_plans_of_generated_graphs_round_trip(graph: LoopGraph, machine: Capabilities) -> None:
    hook = RoundTrips()
    schedule(graph, PassContext({CPU: machine}), hooks=[hook])
    assert {FusedGraph, Plan} <= hook.kinds
