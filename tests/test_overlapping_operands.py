"""Writes whose operands share memory: eager's error where eager refuses them, its values elsewhere."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo reads that of inputs

ORDER = torch.arange(5)

REFUSED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "method": lambda a, b: a.add_(b),
    "copy": lambda a, b: a.copy_(b),
    "operator": operator.itruediv,
    "item": lambda a, b: a.__setitem__(slice(None), b),
    "masked item": lambda a, b: a.__setitem__(ORDER > 2, b[:2]),
    "out": lambda a, b: torch.exp(b, out=a),
    "foreach": lambda a, b: torch._foreach_add_([a], [b]),
    "overload": lambda a, b: torch.ops.aten.mul_.Tensor(a, b),
    "one element": lambda a, b: a.sub_(b[0]),
    "random": lambda a, b: a.bernoulli_(b),
    "scattered": lambda a, b: a.scatter_(0, ORDER, b),
    "expanded": lambda a, b: a[:1].expand(5).add_(1),
    "items of one expanded": lambda a, b: a[:1].expand(5).__setitem__(slice(1, 3), 2),
    "expanded out": lambda a, b: torch.exp(ORDER / 5, out=b[:1].expand(5)),
}

ACCEPTED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "copy of an operand": lambda a, b: a.add_(b + 1),
    "one after the other": lambda a, b: (a.mul_(2), b.add_(1)),
    "itself": lambda a, b: a.mul_(a),
    "expanded": lambda a, b: a[:1].expand(5).fill_(2),
    "an item of one expanded": lambda a, b: a.expand(2, 5).__setitem__((0, 1), 2),
    "halves": lambda a, b: a[:2].add_(b[1:3]),
    "every other": lambda a, b: a[::2].copy_(b[::2]),
    "an expanded one without elements": lambda a, b: a[:0].expand(3, 0).add_(1),
    "a number of it": lambda a, b: a.masked_fill_(ORDER > 2, b[0]),
}


def _shifted() -> tuple[Tensor, Tensor]:
    memory = torch.linspace(0.1, 0.6, 6)
    return memory[:-1], memory[1:]


def _of_arguments(write: Callable[[Tensor, Tensor], object]) -> Callable[..., Tensor]:
    def program(a: Tensor, b: Tensor) -> Tensor:
        write(a, b)
        return a + b

    return program


def _inside(write: Callable[[Tensor, Tensor], object]) -> Callable[..., Tensor]:
    def program(a: Tensor, b: Tensor) -> Tensor:
        memory = torch.cat([a * 2, b[-1:]])
        write(memory[:-1], memory[1:])
        return memory + 1

    return program


@pytest.mark.parametrize("place", [_of_arguments, _inside])
@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_is_refused(name: str, place: Callable[..., Callable[..., Tensor]]) -> None:
    program = place(REFUSED[name])
    generator = torch.get_rng_state()
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="litz", fullgraph=True, dynamic=name == "method")
    arguments = _shifted()
    for _ in range(2):
        for function in (program, compiled):
            with pytest.raises(RuntimeError, match="single memory location"):
                function(*arguments)
    torch.testing.assert_close(arguments, _shifted())
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize("place", [_of_arguments, _inside])
def test_what_eager_accepts_has_its_values(place: Callable[..., Callable[..., Tensor]]) -> None:
    for name, write in ACCEPTED.items():
        torch._dynamo.reset()
        program, arguments, reference = place(write), _shifted(), _shifted()
        found = torch.compile(program, backend="litz", fullgraph=True)(*arguments)
        torch.testing.assert_close((found, arguments), (program(*reference), reference), msg=name)


def test_a_later_call_is_refused() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(_of_arguments(Tensor.add_), backend="litz", fullgraph=True)
    compiled(torch.ones(5), torch.ones(5))
    with pytest.raises(RuntimeError, match="single memory location"):
        compiled(*_shifted())


def test_gradients_are_not_in_the_way() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        y[1:].mul_(y[:-1])
        return y

    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.compile(program, backend="litz")(torch.ones(6, requires_grad=True))
