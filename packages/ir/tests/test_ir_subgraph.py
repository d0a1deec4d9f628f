"""Extraction of subgraphs, which compute the same values as in the whole graph."""

from __future__ import annotations

import numpy as np

from litz_ir.interp.graph import run_graph
from litz_ir.loops.graph import LoopGraph
from litz_ir.loops.operations import Operation
from litz_ir.loops.subgraphs import extract_subgraph
from litz_ir.loops.verify import verify_graph
from litz_ir.text import parse_graph

WHOLE = """
graph whole(%x: f32[4] fixed, %y: f32[4] fixed) -> (%c, %e) {
  %a = pointwise f32[i0: 4] { exp(%x[i0]) }
  %b = pointwise f32[i0: 4] { %a[i0] + %y[i0] }
  %c = pointwise f32[i0: 4] fixed { %b[i0] * 2.0 }
  %d = pointwise f32[i0: 4] { %b[i0] - %a[i0] }
  %e = pointwise f32[i0: 4] fixed { neg(%d[i0]) }
  %x1 replaces %x = mutate %x with %d -> f32[4] fixed
}
"""


def extracted(*names: str) -> LoopGraph | None:
    def chosen(operation: Operation) -> bool:
        return operation.name in names

    return extract_subgraph(parse_graph(WHOLE), chosen, "extracted")


def test_a_subgraph_has_the_values_that_cross_its_border() -> None:
    subgraph = extracted("b", "c", "d")
    assert subgraph is not None
    verify_graph(subgraph)
    assert [each.name for each in subgraph.inputs] == ["a", "y"]
    a, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    c, d = run_graph(subgraph, [a, y])
    assert np.array_equal(c, (a + y) * 2)
    assert np.array_equal(d, y)


def test_operations_that_overwrite_memory_are_not_extracted() -> None:
    assert extracted("d", "x1") is None
    assert extracted() is None


DYNAMIC = """
graph whole($n: int as s0, %x: f32[2*s0] fixed) -> (%b) {
  symbols { s0: int from 1 hint 2 }
  %a = pointwise f32[i0: 2*s0] { exp(%x[i0]) }
  %b = pointwise f32[i0: 2*s0] fixed { %a[i0] * 2.0 }
}
"""


def test_a_subgraph_takes_the_symbols_of_its_graph() -> None:
    subgraph = extract_subgraph(parse_graph(DYNAMIC), lambda operation: operation.name == "b", "extracted")
    assert subgraph is not None
    verify_graph(subgraph)
    assert [each.name for each in subgraph.inputs] == ["s0.given", "a"]
    (doubled,) = run_graph(subgraph, [2, np.ones(4, np.float32)])
    assert np.array_equal(doubled, np.full(4, 2.0))
