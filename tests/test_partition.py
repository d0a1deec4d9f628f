"""CSE of the joint graph before it is partitioned: equal operations are merged, others stay separate."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch._functorch.config as functorch_config
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import litz
from litz_lowering.joint_partition import merge_equal

Program = Callable[..., object]
aten = torch.ops.aten


def traced(program: Program, *args: Tensor) -> GraphModule:
    """Return the program as a graph of ATen operations with metadata."""
    return make_fx(program, tracing_mode="fake")(*args)


def merged(program: Program) -> tuple[GraphModule, list[str]]:
    """Return the program on `X` with equal operations merged, and the names of the remaining ATen operations."""
    gm = traced(program, X)
    merge_equal(gm.graph)
    gm.graph.lint()
    gm.recompile()
    return gm, [str(node.target).split(".")[1] for node in gm.graph.nodes if node.op == "call_function"]


X = torch.arange(12.0).view(3, 4)


def test_equal_operations_are_one_and_so_are_their_readers() -> None:
    def program(x: Tensor) -> Tensor:
        return (x.exp() + 1.0).sum() * (x.exp() + 1.0).amax()

    gm, found = merged(program)
    assert found == ["exp", "add", "sum", "amax", "mul"]
    assert_close(gm(X), program(X))


APART: dict[str, tuple[Program, str]] = {
    "an integer and a float": (lambda x: ((x + 1) * (x + 1.0)).sum(), "add"),
    "zeros of both signs": (lambda x: ((x + 0.0) * (x + -0.0)).sum(), "add"),
    "dtypes": (lambda x: x.sum(dtype=torch.float64) * x.sum(dtype=torch.float32), "sum"),
    "orders": (lambda x: ((x - x.t().t()) * (x.t().t() - x)).sum(), "sub"),
    "random draws": (lambda x: (torch.rand_like(x) - torch.rand_like(x)).sum(), "rand_like"),
    "fresh memory": (lambda x: (torch.empty_like(x), torch.empty_like(x)), "empty_like"),
    "results": (lambda x: (x.exp(), x.exp()), "exp"),
    "views of results": (lambda x: (x.exp().t(), x.exp()), "exp"),
}


@pytest.mark.parametrize("name", APART)
def test_these_stay_apart(name: str) -> None:
    program, kept = APART[name]
    assert merged(program)[1].count(kept) == 2


def test_aliases_are_what_they_alias_unless_that_is_returned() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inside, outside = x.exp(), x.sin()
        return aten.alias(aten.detach(inside)).sum(), outside, aten.alias(outside)

    gm, found = merged(program)
    assert found == ["exp", "sin", "sum", "alias"]
    assert_close(gm(X), program(X))


def test_a_write_parts_what_comes_before_from_what_comes_after() -> None:
    def program(x: Tensor) -> Tensor:
        before = x.exp().sum()
        aten.copy_.default(x, x * 2)
        return before + x.exp().sum()

    assert merged(program)[1].count("exp") == 2


def model(x: Tensor, weight: Tensor) -> Tensor:
    """A function that computes some values twice, and whose backward computes them again."""
    gate = torch.sigmoid(x @ weight.t()) * torch.tanh(x @ weight.t())
    return torch.softmax(gate, -1) * torch.sigmoid(x @ weight.t())


@pytest.mark.parametrize("cse", [True, False])
def test_gradients_are_eagers(cse: bool) -> None:
    x, weight = torch.randn(5, 6, requires_grad=True), torch.randn(7, 6, requires_grad=True)
    wanted = torch.autograd.grad(model(x, weight).square().sum(), (x, weight))
    with functorch_config.patch(cse=cse), litz.config.patch(fallback="error"):
        compiled = torch.compile(model, backend="litz", fullgraph=True)
        found = torch.autograd.grad(compiled(x, weight).square().sum(), (x, weight))
    assert_close(found, wanted)


def test_a_checkpoint_with_random_numbers_repeats_them() -> None:
    def program(x: Tensor) -> Tensor:
        inner = checkpoint(lambda y: torch.dropout(y.sin(), 0.5, True) * y.cos(), x, use_reentrant=False)
        assert isinstance(inner, Tensor)
        return inner.exp()

    x = torch.randn(64, requires_grad=True)
    torch.manual_seed(3)
    (wanted,) = torch.autograd.grad(program(x).sum(), x)
    torch.manual_seed(3)
    with litz.config.patch(fallback="error"):
        (found,) = torch.autograd.grad(torch.compile(program, backend="litz")(x).sum(), x)
    assert_close(found, wanted)


def test_symbolic_sizes_are_divided_too() -> None:
    def program(x: Tensor) -> Tensor:
        return (x.reshape(-1) * x.shape[0]).cumsum(0).reshape(x.shape) / (x.shape[0] * x.shape[1])

    compiled = torch.compile(program, backend="litz", dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 4, requires_grad=True)
        (wanted,) = torch.autograd.grad(program(x).square().sum(), x)
        (found,) = torch.autograd.grad(compiled(x).square().sum(), x)
        assert_close(found, wanted)
