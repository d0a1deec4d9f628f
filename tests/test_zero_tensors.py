"""Zero tensors, which autograd makes of gradients that it knows to be zero and which have no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import litz

ROWS = torch.linspace(-1, 1, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        yield
    torch._dynamo.reset()


def zero_gradient() -> Tensor:
    x = ROWS.clone().requires_grad_()
    (zero,) = torch.autograd.grad(torch.sgn(x).sum(), x)
    assert zero._is_zerotensor() and not zero.data_ptr()
    return zero


def several(t: Tensor, u: Tensor) -> tuple[Tensor, ...]:
    return t[-1] + 10, torch.softmax(t + u, 1), (t + 1) @ u.mT, (t * u).cumsum(0), t.sort(1)[0] - u


@pytest.mark.parametrize("dynamic", [False, True])
def test_inputs_are_zeros(dynamic: bool) -> None:
    compiled = torch.compile(several, backend="litz", dynamic=dynamic)
    zero = zero_gradient()
    views = (
        zero.t().contiguous().t(),
        zero[:1].expand(3, 4),
        zero[:, :2].unflatten(1, (2, 1)).expand(3, 2, 2).flatten(1),
    )
    for x in (ROWS, zero, *views, ROWS, zero):
        torch.testing.assert_close(compiled(x, ROWS), several(x, ROWS))


def test_complex_inputs_are_zeros() -> None:
    zero = torch._efficientzerotensor((3, 4), dtype=torch.complex64)
    compiled = torch.compile(lambda z: (z * 2 + 1, z.conj() + 1j), backend="litz")
    torch.testing.assert_close(compiled(zero), (zero * 2 + 1, zero.conj() + 1j))


def test_a_write_raises() -> None:
    def write(t: Tensor) -> Tensor:
        return t.add_(1) * 2

    compiled = torch.compile(write, backend="litz")
    for function in (write, compiled):
        with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
            function(zero_gradient())
    torch.testing.assert_close(compiled(ROWS.clone()), (ROWS + 1) * 2)


def test_an_input_that_requires_a_gradient() -> None:
    x, y = zero_gradient().requires_grad_(), zero_gradient().requires_grad_()
    (torch.compile(lambda t: (t + ROWS).exp().sum(), backend="litz")(x)).backward()
    (y + ROWS).exp().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


class ZeroGradient(torch.autograd.Function):
    """Identity whose gradient is a zero tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]  # as torch documents it
        return torch._efficientzerotensor(gradient.shape)


@pytest.mark.parametrize("returns_view", [False, True], ids=["plain", "wrapped"])
def test_incoming_gradients_are_zeros(returns_view: bool) -> None:
    def program(x: Tensor) -> Any:
        y = (x * 2).sin() * x.exp()
        return (y, x.view(-1)) if returns_view else y

    compiled = torch.compile(program, backend="litz")
    for function in (program, compiled):
        x = ROWS.clone().requires_grad_()
        result = function(x)
        result = result[0] if returns_view else result
        ZeroGradient.apply(result).sum().backward()
        torch.testing.assert_close(x.grad, torch.zeros(3, 4))


def test_gradients_that_are_zero_tensors_in_the_graph() -> None:
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.sgn(x)
        return y.sum(), y * x

    compiled = torch.compile(step, backend="litz")
    gradients = []
    for function in (step, compiled):
        x = ROWS.clone().requires_grad_()
        total, rows = function(x)
        (total + rows.sum()).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_results_of_operators_are_zeros() -> None:
    @torch.library.custom_op("litz_test::zeros_without_memory", mutates_args=())
    def zeros_without_memory(x: Tensor) -> Tensor:
        return torch._efficientzerotensor(x.shape)

    zeros_without_memory.register_fake(torch.empty_like)

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return zeros_without_memory(x * 2) + x, torch._efficientzerotensor((3, 4)) + x

    torch.testing.assert_close(torch.compile(program, backend="litz")(ROWS), (ROWS, ROWS))


def callables(folder: Path) -> dict[str, Callable[..., Any]]:
    """Calls of compiled graphs that no guard of Dynamo protects."""
    other = ROWS.clone()
    graph = make_fx(several, tracing_mode="fake")(ROWS, other)
    return {
        "compile_fx": litz.compile_fx(graph, [ROWS, other]),
        "compile_fx_inner": litz.compile_fx_inner(graph, [ROWS, other]),
        "standalone_compile": litz.standalone_compile(graph, [ROWS, other]),
        "aot_compile": litz.load(litz.aot_compile(several, (ROWS, other), path=folder / "model.litz")),
    }


def test_calls_without_guards(tmp_path: Path) -> None:
    zero = zero_gradient()
    for name, call in callables(tmp_path).items():
        expected = several(zero, ROWS)
        for result, wanted in zip(call(zero, ROWS), expected):
            torch.testing.assert_close(result, wanted, msg=name)
