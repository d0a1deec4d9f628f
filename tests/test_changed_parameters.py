"""Parameters that are changed in place between calls, which guards of torch 2.11 miss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo reads that of inputs


class Broken(nn.Module):
    """A module in two graphs; the second one reads a parameter that the first one multiplies."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        y = (self.layer(x) + self.shift).detach()
        torch._dynamo.graph_break()
        return self.layer.weight * 2 + y.sum() * 0


def transpose(module: Broken) -> None:
    module.layer.weight.data = module.layer.weight.data.t()


def stride_the_buffer(module: Broken) -> None:
    module.shift.data = torch.arange(8.0)[::2]


def convert(module: Broken) -> None:
    module.to(torch.float64)


def share(module: Broken) -> None:
    module.layer.weight.data = module.layer.weight.data * 3


CHANGES: dict[str, Callable[[Broken], None]] = {
    "transposed": transpose,
    "a buffer with another stride": stride_the_buffer,
    "of another dtype": convert,
    "of another address": share,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_parameters_that_change_between_calls(name: str, training: bool, dynamic: bool | None) -> None:
    module = Broken()
    compiled = torch.compile(module, backend="litz", dynamic=dynamic)

    def compare(rows: int) -> None:
        x = torch.randn(rows, 4, dtype=module.layer.weight.dtype)
        module.zero_grad()
        found, expected = compiled(x), module(x)
        torch.testing.assert_close(found, expected)
        if training:
            own, eager = (torch.autograd.grad(each.sum(), module.layer.weight) for each in (found, expected))
            torch.testing.assert_close(own, eager)

    with torch.set_grad_enabled(training):
        compare(5)
        compare(6)
        CHANGES[name](module)
        compare(6)
        compare(7)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_parameters_that_stay_are_compiled(mode: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    compiled = torch.compile(module, backend="litz")
    for rows in (3, 5, 6):
        x = torch.randn(rows, 4)
        with mode():
            torch.testing.assert_close(compiled(x), module(x))
    assert "runs in eager" not in caplog.text


class Scaled(nn.Module):
    """A layer of a scaled input, whose scale needs a gradient under any mode."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.arange(4.0), requires_grad=False)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            scaled = x * self.scale
        return scaled, self.layer(scaled)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_requires_grad_that_changes_between_calls(mode: Callable[[], Any]) -> None:
    module = Scaled()
    compiled = torch.compile(module, backend="litz")
    for frozen in ((module.scale,), (), (module.layer.weight, module.layer.bias, module.scale)):
        for parameter in module.parameters():
            parameter.requires_grad_(all(parameter is not each for each in frozen))
        x = torch.randn(3, 4)
        with mode():
            found, expected = compiled(x), module(x)
        torch.testing.assert_close(found, expected)
        assert [each.requires_grad for each in found] == [each.requires_grad for each in expected]
        needed = [each for each in module.parameters() if each.requires_grad]
        if expected[1].requires_grad:
            own, eager = (torch.autograd.grad(each[1].sum(), needed) for each in (found, expected))
            torch.testing.assert_close(own, eager)


def test_frozen_parameters_stay_compiled_without_gradients(caplog: pytest.LogCaptureFixture) -> None:
    module = nn.Linear(4, 4)
    compiled = torch.compile(module, backend="litz")
    for frozen in (False, True):
        module.requires_grad_(not frozen)
        x = torch.randn(3, 4)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), module(x))
    assert "runs in eager" not in caplog.text
