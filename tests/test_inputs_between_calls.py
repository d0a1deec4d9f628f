"""What is written between two calls is what the second one computes with, however it was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, linalg, nn
from torch.testing import assert_close

import litz
from litz.capture import aot

SIZE = 48
MODES = [torch.no_grad, torch.inference_mode, torch.enable_grad]
WEIGHT = nn.Parameter(torch.eye(SIZE) * 3)
COLUMNS = torch.randn(SIZE, 4, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        yield


def images(seed: int = 0) -> Tensor:
    return torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(seed)) / SIZE


def spread(x: Tensor) -> Tensor:
    """A symmetric matrix that is far from singular."""
    return WEIGHT + x @ x.mT


CHECKED: dict[str, Callable[[Tensor], Tensor]] = {
    "inverse of a parameter": lambda x: linalg.inv(WEIGHT) + torch.cos(x) @ torch.sin(x),
    "inverse": lambda x: linalg.inv(WEIGHT + x) @ COLUMNS,
    "solve": lambda x: linalg.solve(WEIGHT + x, COLUMNS) + x.cos() @ COLUMNS.sin(),
    "solve for a parameter": lambda x: linalg.solve(WEIGHT, x.cos()) @ WEIGHT.mT,
    "cholesky": lambda x: linalg.cholesky(spread(x)) @ WEIGHT,
    "cholesky solve": lambda x: torch.cholesky_solve(COLUMNS, linalg.cholesky(spread(x))),
    "checked cholesky": lambda x: linalg.cholesky_ex(spread(x), check_errors=True)[0],
    "two checks": lambda x: linalg.inv(spread(x)) @ linalg.cholesky(WEIGHT) @ x.sin(),
    "normal": lambda x: torch.distributions.MultivariateNormal(x[0], spread(x)).log_prob(x),
}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
@pytest.mark.parametrize("name", CHECKED)
def test_checks_leave_inputs_what_they_are(name: str, mode: Callable[[], torch.no_grad]) -> None:
    function = CHECKED[name]
    compiled = torch.compile(function, backend="litz")
    with mode():
        x = images()
        for k in range(3):
            assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-5)
            x.numpy()[5, 7 + k] += 1
            x.numpy()[11] = k


@pytest.mark.parametrize("name", CHECKED)
def test_gradients_flow_through_checks(name: str) -> None:
    function, compiled = CHECKED[name], torch.compile(CHECKED[name], backend="litz")
    for seed in range(2):
        x, y = images(seed).requires_grad_(), images(seed).requires_grad_()
        found, expected = compiled(x), function(y)
        assert_close(found, expected, rtol=1e-4, atol=1e-5)
        (mine,), (theirs,) = (
            torch.autograd.grad(r.square().sum(), i) for r, i in ((found, x), (expected, y))
        )
        assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_a_check_that_fails_raises_what_eager_does() -> None:
    compiled = torch.compile(lambda x: linalg.inv(x) @ WEIGHT, backend="litz")
    with torch.no_grad():
        compiled(torch.eye(SIZE))
        with pytest.raises(RuntimeError, match="singular"):
            compiled(torch.zeros(SIZE, SIZE))


class Mixed(nn.Module):
    """Parameters, one of them under two names, a buffer, another tensor, and whatever the call is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(8))
        self.tied = self.weight
        self.register_buffer("scale", torch.rand(8))
        self.other = torch.rand(8, 8)

    def forward(self, x: Tensor, count: int, nothing: None = None) -> tuple[Tensor, None, Tensor]:
        return x @ self.weight + self.tied * self.scale * count, nothing, linalg.inv(self.weight) @ self.other


def _held(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> list[int]:
    """How many inputs of each graph that ``call`` compiles are taken for parameters."""
    found: list[int] = []

    def noted(gm: torch.fx.GraphModule, parameters: frozenset[int]) -> frozenset[str]:
        names = real(gm, parameters)
        found.append(len(names))
        return names

    real = aot.parameter_inputs
    with monkeypatch.context() as patch, torch.no_grad(), litz.config.patch(cache=False):
        patch.setattr(aot, "parameter_inputs", noted)
        call()
    return found


def test_parameters_and_buffers_are_told_from_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torch.compile(Mixed(), backend="litz")
    assert _held(monkeypatch, lambda: [compiled(torch.rand(8, 8), k) for k in (2, 3)]) == [2, 2]


def test_an_input_that_stays_where_it_is_is_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    x = images()
    torch._dynamo.mark_static_address(x)
    compiled = torch.compile(lambda x: x.cos() @ COLUMNS.sin(), backend="litz")
    assert _held(monkeypatch, lambda: compiled(x)) == [0]


def test_a_marked_input_is_read_at_every_call() -> None:
    kernel = torch.rand(4, 3, 3, 3)
    torch._dynamo.mark_static_address(kernel)
    compiled = torch.compile(lambda x: nn.functional.conv2d(x, kernel), backend="litz")
    x = torch.rand(1, 3, 8, 8)
    with torch.no_grad():
        for k in range(3):
            assert_close(compiled(x), nn.functional.conv2d(x, kernel))
            kernel.numpy()[1, 2, 1, k] += 1


def test_what_a_forward_saves_is_told_from_its_results() -> None:
    """A token before the results: the last result is not taken for one that the backward alone sees."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = linalg.inv(x)
        return y @ x.sin(), torch.exp(y)

    compiled = torch.compile(function, backend="litz")
    x = (torch.eye(SIZE) * 2 + images()).requires_grad_()
    first, second = compiled(x)
    kept = second.detach().clone()
    (first.sum() + second.sum()).backward()
    assert_close(second, kept, rtol=0, atol=0)
    y = x.detach().requires_grad_()
    (function(y)[0].sum() + function(y)[1].sum()).backward()
    assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-4)
