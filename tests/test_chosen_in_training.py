"""Generated matmuls in training graphs: the plans of a forward and of its backward change between calls.

The CPU stands for a GPU here: its target schedules tiles for SMs, and the clock of the tuner reports that generated
matmuls take less time than the library's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import litz
import litz.capture.aot
import litz.compilation.cached
import litz.compilation.compilation
import litz.pipeline
from litz.pipeline import Stages
from litz.targets import TargetSet
from litz.timing import Timer
from litz.tuning.tuned_graph import load_tuned
from litz_codegen_cpp.target import CpuTarget
from litz_ir.plan import CallStep, Kernel, Plan
from litz_ir.target import Capabilities

pytestmark = pytest.mark.sampled  # each test starts processes or compiles whole programs

Function = Callable[[Tensor, Tensor], Tensor]
CALLS = 4
MATMUL_CALLS = ("aten.mm.default", "matmul", "linear")


class Sharing(CpuTarget):
    """The CPU, as if it had SMs that run tiles; its kernels have one schedule each."""

    def capabilities(self) -> Capabilities:
        known = super().capabilities()
        return replace(known, model=replace(known.model, sm_count=4))

    def candidates(self, kernel: Kernel) -> tuple[Kernel, ...]:
        return (kernel,)

    def described(self, kernel: Kernel) -> str:
        return kernel.name

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        return 0.0


def ever_slower() -> Timer:
    """Return a timer by which the first sample, that of the generated matmuls, is the quickest."""
    count = itertools.count(1)

    def sample(call: Callable[[], object]) -> float:
        call()
        return float(next(count))

    return sample


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, list[bool]]]:
    """Plans of whole graphs by the graph's kind, in order: true where a library runs the matmuls."""
    targets = TargetSet({"cpu": Sharing()})
    for module in (litz.compilation.compilation, litz.capture.aot):
        monkeypatch.setattr(module, "targets_for", lambda *_: targets)
    monkeypatch.setattr(litz.pipeline, "load_tuned", partial(load_tuned, clock=ever_slower))
    monkeypatch.setattr(litz.compilation.cached, "chooses_matmuls", lambda *_: True)
    found: dict[str, list[bool]] = {}
    planned = Stages.schedule

    def noting(self: Stages, *args: Any) -> Plan:
        plan = planned(self, *args)
        calls = any(isinstance(step, CallStep) and step.target in MATMUL_CALLS for step in plan.steps)
        found.setdefault(self.captured.name.split("_")[0], []).append(calls)
        return plan

    monkeypatch.setattr(Stages, "schedule", noting)
    with litz.config.patch(
        cache=True, cache_dir=str(tmp_path), fallback="error", autotune=True, autotune_seconds=1e4
    ):
        yield found
    torch._dynamo.reset()


def mlp(x: Tensor, w: Tensor) -> Tensor:
    made = F.gelu(x @ w)
    return torch.sin(made @ w.t()) * torch.tanh(x)


def residual(x: Tensor, w: Tensor) -> Tensor:
    """The saved tensor is a result too, as a view."""
    made = torch.tanh(x + x @ w)
    return made.view(4, 8, 48) * made.sum()


def given() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    x, w = (torch.randn(*shape, generator=generator) / 4 for shape in ((32, 48), (48, 48)))
    return x.requires_grad_(), w.requires_grad_()


def weighted(y: Tensor) -> Tensor:
    return (y * torch.arange(y.numel()).view_as(y).sin()).sum()


def gradients(function: Function, **options: bool) -> tuple[Tensor, ...]:
    x, w = given()
    made = function(x, w)
    return made.detach(), *torch.autograd.grad(weighted(made), (x, w), **options)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [mlp, residual])
def test_forward_and_backward_come_to_generate_their_matmuls(
    function: Function, dynamic: bool, chosen: Mapping[str, list[bool]]
) -> None:
    expected = gradients(function)
    run = torch.compile(function, backend="litz", dynamic=dynamic)
    for _ in range(CALLS):
        assert_close(gradients(run), expected)
    assert chosen == {"forward": [True, False], "backward": [True, False]}


def test_the_next_process_begins_with_what_was_chosen(chosen: Mapping[str, list[bool]]) -> None:
    expected = gradients(mlp)
    for _ in range(3):
        torch._dynamo.reset()
        run = torch.compile(mlp, backend="litz")
        for _ in range(CALLS):
            assert_close(gradients(run), expected)
    # The second process's backward is planned, with its matmuls generated at once, for what its forward has alone.
    assert chosen == {"forward": [True, False], "backward": [True, False, False]}


@pytest.mark.parametrize("option", ["retain_graph", "create_graph"])
def test_a_graph_that_is_retained_runs_again_while_its_plan_changes(
    option: str, chosen: Mapping[str, list[bool]]
) -> None:
    expected = gradients(mlp)
    run = torch.compile(mlp, backend="litz")
    for _ in range(CALLS):
        x, w = given()
        made = run(x, w)
        for _ in range(2):
            found = torch.autograd.grad(weighted(made), (x, w), **{option: True})
            assert_close(tuple(each.detach() for each in found), expected[1:])
    assert chosen["backward"] == [True, False]


def test_a_forward_computed_again_by_another_plan(chosen: Mapping[str, list[bool]]) -> None:
    expected = gradients(mlp)
    run = torch.compile(mlp, backend="litz")
    for _ in range(CALLS):
        assert_close(gradients(lambda x, w: checkpoint(run, x, w, use_reentrant=False)), expected)
    assert chosen["forward"] == [True, False]


def test_timing_draws_no_random_numbers(chosen: Mapping[str, list[bool]]) -> None:
    run = torch.compile(lambda x, w: F.dropout(x @ w, 0.5), backend="litz")
    drawn = []
    for function in (run, lambda x, w: F.dropout(x @ w, 0.5)):
        torch.manual_seed(3)
        drawn.append([gradients(function) for _ in range(CALLS)])
    assert_close(*drawn)
    assert chosen["forward"] == [True, False]
