"""Python floats that change between calls: two graphs serve all values, and a guard of a value holds on cache hits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

import litz

pytestmark = pytest.mark.sampled  # it compiles whole programs

Program = Callable[[Tensor, float], Any]

VALUES = (1.0, 0.25, 0.5, 0.75, 0.1 + 0.2, 2.5)
X = torch.linspace(-2, 2, 8)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[None]:
    with litz.config.patch(cache=True, cache_dir=str(tmp_path / "cache"), fallback="error"):
        yield


def arguments_of_kernels(x: Tensor, s: float) -> list[Tensor]:
    """Every way in which a float becomes an argument of a pointwise kernel, a fill or a call."""
    square = x[:4, None] * x[:4]
    return [
        x * s, s - x, x / s, s / (x + 3), x // s, x % s, x.abs() ** s, torch.full((2,), s), x.new_full((2,), s * 2),
        F.leaky_relu(x, s), F.elu(x, s), F.celu(x, s), F.threshold(x, s, s * 2), F.hardtanh(x, -s, s),
        F.softplus(x, s, s * 3), F.hardshrink(x, s), F.softshrink(x, s), x.clamp(-s, s), x.clamp(min=s),
        x.masked_fill(x > 0, s), torch.where(x > 0, x, s), torch.where(x > s, s, s + 1), x.clone().fill_(s),
        torch.add(x, x, alpha=s), torch.sub(x, x, alpha=s), torch.addcmul(x, x, x, value=s),
        torch.addcdiv(x, x, x + 3, value=s), torch.addmm(square, square, square, beta=s, alpha=s + 1),
        torch.baddbmm(square[None], square[None], square[None], beta=s, alpha=2.0),
        torch.tensor([s, 1.0]) + x[:2], torch.tensor(s) * x, x.double() * s,
        (x.long() * s), x.bfloat16() * s, torch.scalar_tensor(s), x.index_fill(0, torch.tensor([1]), s),
        x.scatter(0, torch.tensor([1, 2]), s), torch.arange(3) * s, x.gt(s), x.eq(s), x + math.sqrt(s),
        x * max(s, 0.3) + min(s, 0.7), x + (s > 5.0),
    ]  # fmt: skip


def counted(program: Program, **options: Any) -> tuple[Program, CompileCounterWithBackend]:
    """Return a program compiled afresh, as in another process, and the counter of its graphs."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("litz")
    return torch.compile(program, backend=counter, fullgraph=True, **options), counter


def run(program: Program, s: float, gradients: bool = False) -> Any:
    """Return the results of a program, and the gradient of its argument."""
    x = X.clone().requires_grad_(gradients)
    results = program(x, s)
    if gradients:
        wanting = [each for each in tree_leaves(results) if each.requires_grad]
        torch.stack([each.double().sum() for each in wanting]).sum().backward()
    return results, x.grad


def test_floats_that_change_are_arguments_of_kernels() -> None:
    compiled, counter = counted(arguments_of_kernels, dynamic=True)
    for s in VALUES:
        assert_close(run(compiled, s), run(arguments_of_kernels, s), equal_nan=True)
    assert counter.frame_count == 1


def differentiated(x: Tensor, s: float) -> list[Tensor]:
    activations = F.leaky_relu(x, s), F.elu(x, s), F.threshold(x, s, s * 2), F.hardtanh(x, -s, s)
    return [x * s, s / (x + 3), torch.full((2,), s), x.clamp(-s, s), x.masked_fill(x > 0, s), *activations]


def test_floats_that_change_are_arguments_of_backwards() -> None:
    compiled, counter = counted(differentiated)
    for s in VALUES:
        assert_close(run(compiled, s, gradients=True), run(differentiated, s, gradients=True))
    assert counter.frame_count == 2


def used_twice(x: Tensor, s: float) -> tuple[Tensor, Tensor]:
    return x * s, torch.full((2,), s)


def branching(x: Tensor, s: float) -> Tensor:
    return x * s if s > 0.6 else x * s + 1


def decided_while_tracing(x: Tensor, s: float) -> Tensor:
    return F.layer_norm(x * s, (8,), eps=s)


def base_of_a_power(x: Tensor, s: float) -> Tensor:
    return s ** x.abs()


CASES = [(used_twice, False), (used_twice, True), (branching, False), (decided_while_tracing, False)]


@pytest.mark.parametrize(("program", "gradients"), [*CASES, (base_of_a_power, True)])
def test_a_cached_graph_serves_only_floats_that_it_is_valid_for(program: Program, gradients: bool) -> None:
    # Each round is a process that has the cache of those before, and meets the values in another order.
    for values in ((0.25, 1.0, 0.5), (1.0, 0.1 + 0.2, 0.25)):
        compiled, _ = counted(program, dynamic=True)
        for s in values:
            assert_close(run(compiled, s, gradients), run(program, s, gradients))


class Annealed(nn.Module):
    """A module with a float that a program changes, and one in a container."""

    def __init__(self) -> None:
        super().__init__()
        self.slope, self.options = 1.0, {"limit": 1.0}

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.slope).clamp(max=self.options["limit"]) * torch.full((8,), self.slope)


def test_floats_of_a_module_may_change() -> None:
    for _ in range(2):
        torch._dynamo.reset()
        module = Annealed()
        counter = CompileCounterWithBackend("litz")
        compiled = torch.compile(module, backend=counter, fullgraph=True)
        for s in VALUES:
            module.slope, module.options = s, {"limit": s / 2}
            assert_close(compiled(X), module(X))
        assert counter.frame_count == 2


def test_hyperparameters_of_an_optimizer_may_change_in_each_step() -> None:
    def trained(compile_: Callable[..., Any]) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        layer = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True)
        step = compile_(optimizer.step)
        for k in range(6):
            (group,) = optimizer.param_groups
            group["lr"], group["momentum"], group["weight_decay"] = (
                0.1 / (k + 1),
                0.95 - 0.02 * k,
                0.1 + 0.1 * k,
            )
            layer.zero_grad()
            layer(torch.arange(8.0).reshape(2, 4)).square().sum().backward()
            step()
        return tuple(each.detach() for each in layer.parameters())

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("litz")
    assert_close(trained(lambda f: torch.compile(f, backend=counter)), trained(lambda f: f))
    assert counter.frame_count <= 3  # the momentum buffers exist from the second step on


def test_an_operator_that_torch_cannot_trace_with_a_symbol_takes_a_constant() -> None:
    compiled, counter = counted(base_of_a_power, dynamic=True)
    for s in (0.25, 0.5):
        assert_close(run(compiled, s, gradients=True), run(base_of_a_power, s, gradients=True))
    assert counter.frame_count == 3, "the first graph was traced again"


def test_torchs_own_rewrite_of_floats_stays_for_other_backends() -> None:
    counted(used_twice, dynamic=True)[0](X, 0.25)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(used_twice, backend=counter, dynamic=True)
    for s in VALUES[:3]:
        assert_close(compiled(X, s), used_twice(X, s))
    assert counter.frame_count > 2
