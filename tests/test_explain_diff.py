"""`litz.diff`: another option, shape or program, and documents that went through a file."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import litz
from litz.explain.report import KernelReport
from litz_ir.errors import ConfigError


def scores(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ w, -1).exp() + 1


def explained(rows: int = 8, **options: object) -> litz.Explanation:
    """Explain the scores of some rows with options."""
    torch._dynamo.reset()
    with litz.config.patch(**options):
        return litz.explain(scores, torch.randn(rows, 16), torch.randn(16, 16))


def test_the_same_program_does_not_differ() -> None:
    one, other = explained(), explained()
    difference = litz.diff(one, json.loads(json.dumps(other.to_json())))
    assert not difference and difference.describe() == "the explanations do not differ"
    assert [each.name for each in difference.graphs] == ["inference 0"]


def test_an_option_that_divides_kernels() -> None:
    difference = litz.diff(explained(), explained(fuse=False))
    (graph,) = difference.graphs
    assert difference and graph.launches.first == 1 and graph.launches.second > 1
    assert len(graph.changed) == 1 and graph.changed[0].lost and not graph.changed[0].gained
    split = {*graph.changed[0].operations, *(name for each in graph.added for name in each)}
    assert split >= set(graph.changed[0].lost), "what the fused kernel lost, others compute"
    assert graph.nbytes.ratio is not None and graph.nbytes.ratio > 1
    text = difference.describe()
    assert "graph inference 0:" in text and "launches: 1 -> " in text and "+ kernel of " in text
    assert any(each.verdict == "fuse" for each in graph.removed_decisions) and "- fusion: fuse" in text
    back = litz.diff(explained(fuse=False), explained()).graphs[0]
    assert (back.launches.second, back.added_decisions) == (1, graph.removed_decisions)


def test_another_shape() -> None:
    (graph,) = litz.diff(explained(8), explained(24)).graphs
    assert not graph.added and not graph.removed
    assert graph.nbytes.second > graph.nbytes.first and graph.peak.ratio == 3
    assert [each.nbytes.ratio for each in graph.changed] == [3]


def test_times_count_beyond_the_noise() -> None:
    report = explained()

    def taking(seconds: float) -> litz.Explanation:
        def timed(kernel: KernelReport) -> KernelReport:
            return replace(kernel, seconds=seconds)

        (graph,) = report.graphs
        kernels = tuple(map(timed, graph.kernels))
        calls = tuple(replace(call, seconds=seconds) for call in graph.calls)
        return replace(report, graphs=(replace(graph, kernels=kernels, calls=calls),))

    assert not litz.diff(taking(1e-5), taking(1.03e-5))
    slower = litz.diff(taking(1e-5), taking(2e-5))
    assert slower and "takes: 10.0 us -> 20.0 us (2.00 times)" in slower.describe()
    assert litz.diff(report, taking(1e-5)).graphs[0].seconds is None


def test_other_graphs_and_calls() -> None:
    torch._dynamo.reset()
    w = torch.randn(16, 16, requires_grad=True)
    trained = litz.explain(
        lambda x: torch.linalg.inv(torch.tanh(x @ w)).sum(), torch.randn(16, 16), backward=True
    )
    difference = litz.diff(explained(), trained)
    assert (difference.removed, difference.added) == (("inference",), ("forward", "backward"))
    assert "- graph: inference\n+ graph: forward" in difference.describe()
    torch._dynamo.reset()
    other = litz.explain(lambda x, w: torch.linalg.inv(x @ w), torch.randn(16, 16), torch.randn(16, 16))
    (graph,) = litz.diff(explained(), other).graphs
    assert "aten.linalg_inv_ex.default" in graph.added_calls and "aten.mm.default" not in graph.added_calls


@pytest.mark.parametrize("document", [{}, {"format": "litz-explanation", "version": 99}])
def test_other_documents_are_refused(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="no document of an explanation"):
        litz.diff(document, document)
