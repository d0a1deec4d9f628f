"""Gradients of programs that draw random numbers or overwrite inputs, whatever the backward recomputes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch._functorch.config as functorch_config
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import litz

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo reads that of inputs

Step = Callable[[Tensor], Tensor]
Write = Callable[[Tensor, Tensor], Tensor]

DRAWS: dict[str, Step] = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "feature dropout": lambda x: F.dropout1d(x[None], 0.5)[0],
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "rand_like": lambda x: x * torch.rand_like(x),
    "normal": lambda x: x * torch.normal(0.0, 1.0, x.shape, dtype=x.dtype),
    "bernoulli": lambda x: x * torch.empty_like(x).bernoulli_(0.4),
    "randint": lambda x: x * torch.randint(1, 9, x.shape),
    "randperm": lambda x: x[torch.randperm(x.shape[0])],
    "multinomial": lambda x: x[:, torch.multinomial(torch.ones(x.shape[1]), x.shape[1])],
    "rrelu": lambda x: F.rrelu(x, training=True),
    "gumbel": F.gumbel_softmax,
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5)[0],
    "exponential": lambda x: x * torch.empty_like(x).exponential_(),
    "poisson": lambda x: x * torch.poisson(torch.full_like(x, 3.0)),
}


def all_draws(x: Tensor) -> Tensor:
    """Draw by each operator, with values between that a backward may recompute."""
    for draw in DRAWS.values():
        x = draw(x.sin()).tanh().exp()
    return x.cos()


def two_regions(x: Tensor) -> Tensor:
    """Checkpoint two regions, one of them in another, and draw outside of both."""
    inner = partial(checkpoint, lambda y: F.dropout(y.sin(), 0.5).exp(), use_reentrant=False)
    region: Tensor = checkpoint(lambda y: inner(y.exp()) * F.dropout(y, 0.5), x, use_reentrant=False)
    return F.dropout(region.tanh(), 0.3).exp()


def _policy(ctx: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
    saved = op == torch.ops.aten.native_dropout.default
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


def selected(x: Tensor) -> Tensor:
    """Checkpoint a region of which some draws are saved."""
    contexts = partial(create_selective_checkpoint_contexts, _policy)
    region: Tensor = checkpoint(
        lambda y: (F.dropout(y.sin(), 0.5) * torch.rand_like(y)).exp(),
        x,
        use_reentrant=False,
        context_fn=contexts,
    )
    return F.dropout(region.tanh(), 0.3).exp()


def _gradient(program: Step) -> tuple[Tensor, Tensor]:
    x = torch.linspace(-1, 1, 36, dtype=torch.float64).reshape(6, 6).requires_grad_()
    torch.manual_seed(7)
    result = program(x)
    (gradient,) = torch.autograd.grad(result, x, torch.arange(36.0, dtype=torch.float64).reshape(6, 6))
    return result.detach(), gradient


def _compiled(program: Callable[..., Tensor]) -> Callable[..., Tensor]:
    torch._dynamo.reset()
    return torch.compile(program, backend="litz", fullgraph=True)


@pytest.mark.parametrize(
    ("program", "budget"),
    [(all_draws, 0.0), (two_regions, 0.0), (selected, 1.0), (selected, 0.5)],
)
def test_a_backward_draws_the_forwards_numbers(program: Step, budget: float) -> None:
    expected = _gradient(program)
    with functorch_config.patch(activation_memory_budget=budget), litz.config.patch(fallback="error"):
        torch.testing.assert_close(_gradient(_compiled(program)), expected)


def test_a_branch_that_draws_is_not_recomputed(caplog: pytest.LogCaptureFixture) -> None:
    def program(x: Tensor) -> Tensor:
        return torch.cond(
            x.sum() > -1e9, lambda x: F.dropout(x.sin(), 0.5).cos(), torch.cos, (x.exp(),)
        ).tanh()

    expected = _gradient(program)
    with functorch_config.patch(activation_memory_budget=0.0):
        torch.testing.assert_close(_gradient(_compiled(program)), expected)
    assert "draw random numbers would be recomputed" in caplog.text


def adds(x: Tensor, buffer: Tensor) -> Tensor:
    """Overwrite a buffer after a function of it was multiplied."""
    y = (x * buffer.sin()).cos()
    buffer.add_(1)
    return y


def adds_before(x: Tensor, buffer: Tensor) -> Tensor:
    """Overwrite a buffer, and use what is left."""
    buffer.add_(1)
    return (x.sin() * (buffer * 3).cos()).cos() * F.dropout(buffer * x, 0.5)


def zeroes_a_view(x: Tensor, buffer: Tensor) -> Tensor:
    """Overwrite a row of a buffer whose transpose is read."""
    y = (x * buffer.t().sin()).cos()
    buffer[0].zero_()
    return y


def detached(x: Tensor, buffer: Tensor) -> Tensor:
    """Overwrite the argument itself, unseen by autograd."""
    y = x.exp() * buffer.exp()
    x.detach().mul_(2)
    return y


def overwrites_an_argument(x: Tensor, buffer: Tensor) -> Tensor:
    """Overwrite an argument that needs a gradient, which AOTAutograd does after the forward."""
    y = x.exp() * buffer.exp()
    x.mul_(2)
    return y * x


WRITES: list[Write] = [adds, adds_before, zeroes_a_view, detached, overwrites_an_argument]


@pytest.mark.parametrize(("writes", "budget"), [(WRITES, 1.0), ([adds_before], 0.0), ([detached], 0.0)])
def test_a_backward_has_the_elements_from_before_a_write(writes: list[Write], budget: float) -> None:
    def numbers(first: float, last: float) -> Tensor:
        return torch.linspace(first, last, 36, dtype=torch.float64).reshape(6, 6)

    def all_writes(inputs: list[Tensor], buffers: list[Tensor]) -> list[Tensor]:
        return [write(x, buffer) for write, x, buffer in zip(writes, inputs, buffers, strict=True)]

    def run(program: Callable[[list[Tensor], list[Tensor]], list[Tensor]]) -> list[Tensor]:
        leaves = [numbers(-1, 1).requires_grad_() for _ in writes]
        buffers = [numbers(1, 2) for _ in writes]
        seen = []
        for _ in range(2):
            inputs = [leaf * 1 for leaf in leaves]
            torch.manual_seed(3)
            results = program(inputs, buffers)
            sums = [r.square().sum() + x.sin().sum() for r, x in zip(results, inputs, strict=True)]
            gradients = torch.autograd.grad(torch.stack(sums).sum(), leaves)
            seen += [*(r.detach() for r in results), *gradients, *(buffer.clone() for buffer in buffers)]
        return seen

    expected = run(all_writes)
    with functorch_config.patch(activation_memory_budget=budget), litz.config.patch(fallback="error"):
        torch.testing.assert_close(run(_compiled(all_writes)), expected)
