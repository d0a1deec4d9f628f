"""Compiled backwards that autograd runs with ``create_graph``, or for a batch of gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import litz

pytestmark = pytest.mark.sampled  # it compiles whole programs

Function = Callable[[Tensor], Tensor]
WEIGHT = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
FROZEN = WEIGHT.detach()

DEPENDENT: dict[str, Function] = {
    "saves its input": lambda x: (x**4).sum(),
    "saves an intermediate tensor": lambda x: x.exp().sum(),
    "saves its result": lambda x: x.tanh(),
    "saves weights and its input": lambda x: torch.nn.functional.linear(x, WEIGHT).sum(),
    "has a saved activation": lambda x: torch.tanh(x @ WEIGHT).sum(),
    "returns a view of its input": lambda x: (x.view(-1), x.sigmoid().sum())[1],
}
"""Functions whose gradients depend on inputs that require gradients."""

LINEAR: dict[str, Function] = {
    "is scaled": lambda x: (2 * x).sum(),
    "is multiplied by constants": lambda x: torch.nn.functional.linear(x, FROZEN).sum(),
}
"""Functions whose gradients depend on nothing that requires gradients."""


def penalised(function: Function, x: Tensor) -> Tensor:
    """Return the gradient of a loss with a gradient penalty, computed outside the function."""
    total = function(x).sum()
    (gradient,) = torch.autograd.grad(total, x, create_graph=True)
    return torch.autograd.grad(total + (gradient**2).sum(), x)[0]


@pytest.fixture(params=["static", "dynamic"])
def calls(request: pytest.FixtureRequest) -> Iterator[Callable[[Function], Iterator[Function]]]:
    """A function that yields a compiled function for a first call, a second one and one after a reset of Dynamo."""

    def compile(function: Function) -> Iterator[Function]:
        for _ in range(2):
            torch._dynamo.reset()
            compiled: Function = torch.compile(function, backend="litz", dynamic=request.param == "dynamic")
            yield compiled
            yield compiled

    with litz.config.patch(fallback="error"):
        yield compile
    torch._dynamo.reset()


@pytest.mark.parametrize("name", DEPENDENT)
def test_a_gradient_penalty_is_refused(name: str, calls: Callable[[Function], Iterator[Function]]) -> None:
    for compiled in calls(DEPENDENT[name]):
        with pytest.raises(RuntimeError, match="double backward"):
            penalised(compiled, torch.full((3,), 0.5, requires_grad=True))
        leaf = torch.full((2, 3), 0.5, requires_grad=True)
        with pytest.raises(RuntimeError, match="double backward"):
            penalised(lambda x: compiled(x[0]), leaf)  # noqa: B023


@pytest.mark.parametrize("name", LINEAR)
def test_the_penalty_of_a_linear_function_is_eagers(
    name: str, calls: Callable[[Function], Iterator[Function]]
) -> None:
    for compiled in calls(LINEAR[name]):
        x = torch.full((3,), 0.5, requires_grad=True)
        assert_close(penalised(compiled, x), penalised(LINEAR[name], x))


def test_the_derivative_by_an_incoming_gradient_is_refused(
    calls: Callable[[Function], Iterator[Function]],
) -> None:
    for compiled in calls(lambda x: 2 * x):
        x, incoming = (torch.ones(3, requires_grad=True) for _ in range(2))
        (gradient,) = torch.autograd.grad(compiled(x), x, incoming, create_graph=True)
        with pytest.raises(RuntimeError, match="double backward"):
            torch.autograd.grad(gradient.sum(), incoming)


def two_results(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scaled = torch.nn.functional.layer_norm(x @ WEIGHT, (3,))
    return scaled, torch.tanh(scaled).sum(0), x.argmax(0)


def test_gradients_are_batched(calls: Callable[[Function], Iterator[Function]]) -> None:
    generator = torch.Generator().manual_seed(3)
    incoming = [torch.randn(4, *shape, generator=generator) for shape in ((2, 3), (3,))]

    def batch(function: Function) -> tuple[Tensor, ...]:
        x = torch.linspace(-1, 2, 6).view(2, 3).requires_grad_()
        return torch.autograd.grad(function(x)[:2], (x, WEIGHT), incoming, is_grads_batched=True)

    for compiled in calls(two_results):
        assert_close(batch(compiled), batch(two_results))


def test_a_jacobian_is_vectorised(calls: Callable[[Function], Iterator[Function]]) -> None:
    x = torch.linspace(-1, 1, 4)
    for compiled in calls(torch.tanh):
        found = torch.autograd.functional.jacobian(compiled, x, vectorize=True)
        assert_close(found, torch.diag(1 - torch.tanh(x) ** 2))
