"""Data of `litz.explain` beyond kernels: guards, sizes, recompilations, memory, work, limits, fallbacks, the cache."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import litz
from litz.explain.machine import MachineLimits, machine_limits
from litz.explain.work import call_flops
from litz.testing import fresh_cache
from litz_ir.plan import CallStep


def choose(x: torch.Tensor, factor: int) -> torch.Tensor:
    if x.shape[0] > 5:
        x = x + 1
    if x.shape[0] == 7:
        x = x * 3
    return torch.softmax(x * factor, -1)


def test_guards_sizes_and_recompilations() -> None:
    torch._dynamo.reset()
    report = litz.explain(
        choose, torch.randn(4, 8), 3, others=[(torch.randn(6, 8), 3), (torch.randn(7, 8), 3)]
    )
    assert [frame.function for frame in report.frames] == ["choose"] * 3
    assert [frame.compile_id.partition("/")[2] for frame in report.frames] == ["0", "1", "2"]
    first, second, third = report.frames
    assert first.recompile_reason == "" and first.sizes == () and first.seconds is not None
    assert {("CONSTANT_MATCH", "L['factor']"), ("TENSOR_MATCH", "L['x']")} <= {
        (g.kind, g.name) for g in first.guards
    }
    (constant,) = (guard for guard in first.guards if guard.name == "L['factor']")
    assert constant.code == ("L['factor'] == 3",) and "torch.softmax(x * factor, -1)" in constant.line
    assert "size mismatch at index 0. expected 4, actual 6" in second.recompile_reason
    assert "\n" not in third.recompile_reason and third in report.recompiles and len(report.recompiles) == 2
    (size,) = second.sizes
    assert (size.name, size.value, size.low) == ("L['x'].size()[0]", None, "6")
    assert any("x.shape[0] > 5" in reason for reason in size.reasons)
    (fixed,) = third.specialised
    assert fixed.value == 7 and any("if x.shape[0] == 7" in reason for reason in fixed.reasons)
    text = str(report)
    assert "specialised L['x'].size()[0] to 7 in choose" in text and "recompiled choose" in text


def test_earlier_compilations_are_not_reported() -> None:
    torch._dynamo.reset()
    litz.explain(torch.sin, torch.randn(3))
    report = litz.explain(choose, torch.randn(4, 8), 3)
    assert [frame.function for frame in report.frames] == ["choose"]


class Block(nn.Module):
    """Matmuls around activations."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down(F.gelu(self.up(x)))
        return result


def test_memory_over_time_ends_at_the_peak_of_the_plan() -> None:
    torch._dynamo.reset()
    report = litz.explain(Block(), torch.randn(64, 32), backward=True)
    assert [len(graph.memory) for graph in report.graphs] == [1, 1]
    for graph in report.graphs:
        ((name, timeline),) = graph.memory
        assert name == graph.plan.name and timeline.peak == graph.plan.peak
        assert len(timeline.live) == len(graph.plan.steps)
    assert report.peak == max(graph.memory[0][1].peak for graph in report.graphs)
    owners = {each.value: each.nbytes for each in report.graphs[0].memory[0][1].owners}
    assert max(owners.values()) == 64 * 128 * 4 and set(owners) & {"gelu", "addmm"}


@pytest.mark.parametrize(
    ("function", "shapes", "flops"),
    [
        (torch.mm, [(8, 16), (16, 4)], 2 * 8 * 16 * 4),
        (torch.baddbmm, [(3, 8, 4), (3, 8, 16), (3, 16, 4)], 2 * 3 * 8 * 16 * 4),
        (lambda x, w: F.conv2d(x, w, padding=1), [(2, 3, 9, 9), (5, 3, 3, 3)], 2 * 2 * 5 * 81 * 27),
        (lambda x, w: F.conv_transpose2d(x, w), [(2, 3, 9, 9), (3, 5, 2, 2)], 2 * 2 * 3 * 81 * 5 * 4),
        (F.scaled_dot_product_attention, [(2, 4, 16, 264)] * 3, 2 * 2 * (2 * 4 * 16 * 264) * 16),
    ],
    ids=["mm", "baddbmm", "convolution", "transposed", "attention"],
)
def test_operations_of_calls(
    function: Callable[..., torch.Tensor], shapes: list[tuple[int, ...]], flops: int
) -> None:
    torch._dynamo.reset()
    with torch.no_grad(), litz.config.patch(prepack_weights=False):
        report = litz.explain(function, *(torch.randn(shape) for shape in shapes))
    plan = report.graphs[0].plan
    counted = [call_flops(step, plan) for step in plan.steps if isinstance(step, CallStep)]
    assert [each for each in counted if each] == [flops]
    assert report.calls[0].nbytes >= sum(4 * torch.Size(shape).numel() for shape in shapes)


def test_operations_of_kernels() -> None:
    torch._dynamo.reset()
    report = litz.explain(lambda x: x * 2 + 1, torch.randn(10, 12))
    assert [kernel.flops for kernel in report.kernels] == [2 * 120]
    torch._dynamo.reset()
    report = litz.explain(lambda x: x.sum(), torch.randn(10, 12))
    assert sum(kernel.flops for kernel in report.kernels) == 120


def test_measured_kernels_and_calls_are_compared_with_the_machine() -> None:
    torch._dynamo.reset()
    report = litz.explain(Block(), torch.randn(256, 32), measure=True)
    (limits,) = report.limits
    assert limits is machine_limits("cpu"), "measured once per process"
    assert 1e8 < limits.bytes_per_second < 1e14 and 1e8 < limits.flops_per_second < 1e16
    assert all(call.seconds is not None and call.seconds > 0 for call in report.calls)
    for kernel in report.kernels:
        assert kernel.seconds is not None
        least = max(kernel.nbytes / limits.bytes_per_second, kernel.flops / limits.flops_per_second)
        assert kernel.lost_seconds(limits) == max(0.0, kernel.seconds - least)
    slow = MachineLimits("cpu", 1e18, 1e18)
    assert all(
        kernel.lost_seconds(slow) == pytest.approx(kernel.seconds, rel=1e-3) for kernel in report.kernels
    )
    assert len(report.slowest(1)) <= 1
    assert litz.explain(Block(), torch.randn(256, 32)).limits == ()


def test_timed_calls_are_made_once_where_they_have_effects() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.index_put_((torch.tensor([0]),), torch.ones(8), accumulate=True)
        result: torch.Tensor = torch.linalg.inv(x + 9 * torch.eye(8)) + torch.rand(8, 8)
        return result

    torch._dynamo.reset()
    x, expected = (torch.ones(8, 8) for _ in range(2))
    torch.manual_seed(0)
    program(expected)
    drawn = torch.rand(3)
    torch.manual_seed(0)
    litz.explain(program, x, measure=True)
    torch.testing.assert_close(x, expected)
    torch.testing.assert_close(torch.rand(3), drawn)


def test_fallbacks_by_cost() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.linalg.inv(x), torch.linalg.inv(2 * x), torch.linalg.matrix_exp(y)

    torch._dynamo.reset()
    report = litz.explain(program, torch.eye(4), torch.eye(64))
    costs = report.graphs[0].fallback_costs
    assert [cost.nbytes for cost in costs] == sorted((cost.nbytes for cost in costs), reverse=True)
    by_target = {cost.target: cost for cost in costs}
    assert costs[0].target == "aten.linalg_matrix_exp.default" and costs[0].nbytes == 2 * 64 * 64 * 4
    assert by_target["aten.linalg_inv_ex.default"].calls == 2 and costs[0].seconds is None


def test_the_state_of_the_cache() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    with fresh_cache():
        missed = litz.explain(program, torch.randn(5)).graphs[0]
        torch._dynamo.reset()
        found = litz.explain(program, torch.randn(5)).graphs[0]
        torch._dynamo.reset()
        with litz.config.patch(cache=False):
            off = litz.explain(program, torch.randn(5)).graphs[0]
    assert [each.cache_state for each in (missed, found, off)] == ["miss", "hit", "off"]
    assert missed.key == found.key != ""
    assert missed.compile_seconds > 0


def test_the_document_is_json_and_complete() -> None:
    torch._dynamo.reset()
    report = litz.explain(choose, torch.randn(4, 8), 3, others=[(torch.randn(6, 8), 3)], measure=True)
    document = json.loads(json.dumps(report.to_json()))
    assert document["format"] == "litz-explanation" and document["version"] == 1
    assert [len(graph["kernels"]) for graph in document["graphs"]] == [len(g.kernels) for g in report.graphs]
    (kernel,) = document["graphs"][0]["kernels"]
    assert kernel["bytes"] == report.kernels[0].nbytes and kernel["seconds"] > 0
    assert {"stage", "about", "verdict", "reason", "sentence", "bytes", "note", "plan"} == set(
        document["graphs"][0]["decisions"][0]
    )
    assert document["frames"][1]["recompile_reason"] and document["limits"][0]["device"] == "cpu"
