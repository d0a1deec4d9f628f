"""Arguments that share memory in another way than in the call that compiled the graph, which overwrites one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo reads that of inputs

Pair = tuple[Tensor, Tensor]


def _numbers() -> Tensor:
    return torch.arange(24.0).reshape(4, 6)


def _shifted(first: int, second: int) -> Pair:
    memory = torch.arange(40.0)
    return memory.as_strided((4, 6), (6, 1), first), memory.as_strided((4, 6), (6, 1), second)


def _with_view(view: Callable[[Tensor], Tensor]) -> Pair:
    base = _numbers()
    return base, view(base)


def _of_numpy() -> Pair:
    array = _numbers().numpy().copy()
    return torch.from_numpy(array), torch.from_numpy(array)


PAIRS: dict[str, Callable[[], Pair]] = {
    "distinct": lambda: (_numbers(), _numbers()),
    "the same": lambda: _with_view(lambda base: base),
    "view": lambda: _with_view(lambda base: base.view(4, 6)),
    "detached": lambda: _with_view(torch.Tensor.detach),
    "set": lambda: _with_view(lambda b: torch.empty(0).set_(b.untyped_storage(), 0, (4, 6), (6, 1))),
    "of one array": _of_numpy,
    "shifted": lambda: _shifted(0, 1),
    "shifted back": lambda: _shifted(1, 0),
    "halves of one storage": lambda: (lambda s: (s[:4], s[4:]))(torch.arange(48.0).reshape(8, 6)),
}


def doubles_the_first(x: Tensor, y: Tensor) -> Tensor:
    """Overwrite the first argument."""
    x.mul_(2)
    return x + y


def writes_a_view(x: Tensor, y: Tensor) -> Tensor:
    """Overwrite every other element of the first argument, and return the second."""
    x.view(-1)[::2].mul_(2)
    return y + 1


def adds_to_the_second(x: Tensor, y: Tensor) -> Tensor:
    """Overwrite the second argument after it was read."""
    z = y.sin()
    y.add_(1)
    return x * z


@pytest.mark.parametrize("program", [doubles_the_first, writes_a_view, adds_to_the_second])
@pytest.mark.parametrize("first", ["distinct", "shifted", "halves of one storage"])
def test_later_calls_are_eagers(program: Callable[[Tensor, Tensor], Tensor], first: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="litz", fullgraph=True)
    for name in (first, *PAIRS):
        arguments, reference = PAIRS[name](), PAIRS[name]()
        found, expected = compiled(*arguments), program(*reference)
        torch.testing.assert_close((found, arguments), (expected, reference), rtol=0, atol=1e-5)


def test_gradients_of_a_call_with_shared_memory() -> None:
    def scaled(x: Tensor, buffer: Tensor) -> Tensor:
        buffer.mul_(2)
        return (x.sin() * 3).sum()

    torch._dynamo.reset()
    compiled = torch.compile(scaled, backend="litz", fullgraph=True)
    for shared in (False, True):
        grads = []
        for function in (compiled, scaled):
            leaf = torch.ones(6, requires_grad=True)
            x = leaf * 2
            function(x, x.detach() if shared else torch.ones(6)).backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(*grads)


class Steps(torch.nn.Module):
    """Module that overwrites a buffer or its argument."""

    def __init__(self, writes_buffer: bool) -> None:
        super().__init__()
        self.register_buffer("steps", torch.ones(4))
        self.scale = torch.nn.Parameter(torch.ones(4))
        self.writes_buffer = writes_buffer

    def forward(self, x: Tensor) -> Tensor:
        (self.steps if self.writes_buffer else x).add_(1)
        return (x if self.writes_buffer else self.steps) * 2 * self.scale


@pytest.mark.parametrize("writes_buffer", [True, False])
def test_an_argument_that_is_a_view_of_a_buffer(writes_buffer: bool) -> None:
    torch._dynamo.reset()
    module, reference = Steps(writes_buffer), Steps(writes_buffer)
    compiled = torch.compile(module, backend="litz", fullgraph=True)
    for of in (
        lambda m: torch.ones(4),
        lambda m: m.steps[:],
        lambda m: m.steps.detach(),
        lambda m: torch.ones(4),
    ):
        torch.testing.assert_close(compiled(of(module)), reference(of(reference)))
        torch.testing.assert_close(module.steps, reference.steps)
