"""`litz.explain`: fused operations with their source lines, library calls with their reasons, as data and as text."""

from __future__ import annotations

import torch

import litz


def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    scaled = x * 0.125
    probabilities = torch.softmax(scaled, -1)
    return torch.linalg.inv(probabilities @ w + 8 * torch.eye(8))


def test_report_as_data() -> None:
    report = litz.explain(block, torch.randn(8, 8), torch.randn(8, 8))
    assert len(report.graphs) == 1 and report.uncompiled == 0
    softmax = report.kernels[0]
    assert any("test_explain.py" in line and "softmax" in line for line in softmax.lines)
    assert len(softmax.kernel.phases) == 3, "a softmax is one kernel of three phases"
    inverse = ["aten.linalg_inv_ex.default", "aten._linalg_check_errors.default"]
    assert [call.target for call in report.calls] == ["aten.mm.default", *inverse]
    assert [left.target for left in report.fallbacks] == inverse
    assert {"inline.cheap", "fuse.producer"} <= {decision.reason.key for decision in report.decisions}


def test_report_as_text() -> None:
    text = str(litz.explain(block, torch.randn(8, 8), torch.randn(8, 8)))
    assert "softmax" in text and "aten.mm.default" in text and "test_explain.py" in text
    assert "fallback to ATen: aten.linalg_inv_ex.default: linear algebra runs in a library" in text
    assert "modelled peak memory 516 B" in text


def test_backward_is_reported() -> None:
    w = torch.randn(8, 8, requires_grad=True)
    report = litz.explain(lambda x: torch.tanh(x @ w).sum(), torch.randn(8, 8), backward=True)
    assert [graph.name.split("_")[0] for graph in report.graphs] == ["forward", "backward"]
    assert all(graph.source.startswith("def call(args):") for graph in report.graphs)


def test_a_scale_per_channel_is_computed_outside_the_inner_loop() -> None:
    def function(x: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(variance + 1e-5)[:, None, None] + x

    variance = torch.rand(8)
    contiguous = torch.randn(2, 8, 6, 6)
    channels_last = contiguous.to(memory_format=torch.channels_last)
    counts = {}
    for name, x in (("contiguous", contiguous), ("channels last", channels_last)):
        report = litz.explain(function, x, variance)
        counts[name] = len(report.kernels)
        assert ("inline.loop_invariant" in {d.reason.key for d in report.decisions}) == (name == "contiguous")
    assert counts == {"contiguous": 1, "channels last": 2}


def test_kernels_are_measured_when_asked() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y.mul_(2).add_(x.sum(1, keepdim=True))

    x, y = torch.randn(300, 40), torch.randn(300, 40)
    wanted = function(x, y.clone())
    report = litz.explain(function, x, y, measure=True)
    torch.testing.assert_close(y, wanted)
    moved = sum(kernel.nbytes for kernel in report.kernels)
    assert moved >= 3 * x.nbytes
    for kernel in report.kernels:
        assert kernel.seconds is not None and kernel.rate == kernel.nbytes / kernel.seconds
    text = str(report)
    assert "GB/s" in text and "moves MB" in text and "tuned" not in text
    plain = litz.explain(torch.softmax, x, -1, measure=True)
    assert all(kernel.seconds is not None for kernel in plain.kernels)
    unmeasured = litz.explain(function, x, y)
    assert {kernel.rate for kernel in unmeasured.kernels} == {None} and "GB/s" not in str(unmeasured)


def test_a_module_that_dynamo_does_not_capture_is_explained() -> None:
    torch._dynamo.reset()
    report = litz.explain(torch.nn.LSTM(4, 5), torch.randn(3, 2, 4))
    text = str(report)
    assert report.graphs == () and [each.count for each in report.breaks] == [1]
    assert "no graph was compiled" in text
    assert "graph break: Attempted to wrap RNN, GRU, or LSTM" in text and "Hint: " in text


class Tagger(torch.nn.Module):
    """A model with one layer that Dynamo does not capture."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.tags = torch.nn.LSTM(4, 5), torch.nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.tags(self.layer(x.sin())[0])
        return result


def test_a_module_around_one_that_dynamo_does_not_capture_is_explained() -> None:
    torch._dynamo.reset()
    report = litz.explain(Tagger(), torch.randn(3, 2, 4))
    assert report.graphs == () and [each.count for each in report.breaks] == [1]
    assert "graph break: Attempted to wrap RNN, GRU, or LSTM" in str(report)


def test_graph_breaks_are_told_with_graphs() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        y = y + 1
        torch._dynamo.graph_break()
        return y.cos()

    torch._dynamo.reset()
    report = litz.explain(function, torch.randn(4))
    assert len(report.graphs) == 3
    assert sum(each.count for each in report.breaks) == 2
    assert "graph break (2 times): Call to `torch._dynamo.graph_break()`" in str(report)


def test_a_call_without_tensors_is_explained() -> None:
    torch._dynamo.reset()
    report = litz.explain(lambda: 3)
    assert report.graphs == () and report.breaks == ()
    assert str(report).startswith("no graph was compiled")


def test_a_whole_graph_tells_of_no_break() -> None:
    torch._dynamo.reset()
    report = litz.explain(torch.sin, torch.randn(4))
    assert report.breaks == () and "break" not in str(report)


def test_a_function_is_explained_any_number_of_times() -> None:
    torch._dynamo.reset()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    with torch._dynamo.config.patch(recompile_limit=2):
        reports = [litz.explain(function, torch.ones(size)) for size in (3, 3, 4, 4)]
        differing = litz.explain(function, torch.ones(3), others=[(torch.ones(3).double(),)])
    assert [(len(report.kernels), report.recompiles) for report in reports] == [(1, ())] * 4
    assert len(differing.recompiles) == 1 and "dtype mismatch" in differing.recompiles[0].recompile_reason
    assert str(litz.diff(*reports[:2])) == "the explanations do not differ"
