"""Custom autograd functions under ``torch.func`` have their own gradients and vmap rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import litz
from litz.notices import log_once

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo reads that of inputs


class Scaled(torch.autograd.Function):
    """A sine with five times its gradient, and a vmap rule that torch generates."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x.cos() * 5


class Rounded(torch.autograd.Function):
    """Rounding with the gradient of the identity, and a vmap rule that doubles."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient

    @staticmethod
    def vmap(info: Any, dims: tuple[int], x: Tensor) -> tuple[Tensor, int]:
        return x.round() * 2, dims[0]


def _energy(x: Tensor) -> Tensor:
    return (Scaled.apply(Rounded.apply(x) + x) * x).sum()  # type: ignore[no-untyped-call]


def _pulled(x: Tensor) -> tuple[Tensor, Tensor]:
    result, pull = torch.func.vjp(lambda y: Scaled.apply(y).cos(), x)
    return result, pull(torch.ones_like(x))[0]


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "grad": torch.func.grad(_energy),
    "vjp": _pulled,
    "jacrev": torch.func.jacrev(Scaled.apply),
    "second gradient": lambda x: torch.func.jacrev(torch.func.grad(_energy))(x),
    "per-sample gradients": torch.vmap(torch.func.grad(lambda x: Scaled.apply(x) * x)),
    "rule of vmap": torch.vmap(Rounded.apply),
    "generated rule": torch.vmap(lambda x: Scaled.apply(x) * 3),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("training", [False, True])
def test_custom_gradients_are_used(name: str, training: bool) -> None:
    program = PROGRAMS[name]
    x = torch.linspace(-2, 2, 5).requires_grad_(training)
    torch._dynamo.reset()
    found, expected = torch.compile(program, backend="litz")(x), program(x)
    torch.testing.assert_close(found, expected)
    if training and isinstance(expected, Tensor):
        (own,) = torch.autograd.grad(found.sum(), x)
        torch.testing.assert_close(own, torch.autograd.grad(expected.sum(), x)[0])


def test_the_reason_is_logged_and_the_rest_compiled(caplog: pytest.LogCaptureFixture) -> None:
    log_once.cache_clear()
    torch._dynamo.reset()
    torch.compile(torch.func.grad(_energy), backend="litz")(torch.ones(3))
    assert "a function runs in eager: Rounded has a gradient or vmap rule of its own" in caplog.text
    caplog.clear()
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        torch.compile(torch.func.grad(lambda x: x.sin().sum()), backend="litz", fullgraph=True)(torch.ones(3))
        outside = torch.compile(_energy, backend="litz", fullgraph=True)(torch.ones(3, requires_grad=True))
    assert outside.requires_grad and "runs in eager" not in caplog.text
