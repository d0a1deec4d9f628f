"""Regions inside regions: values and gradients are eager's, compiled and in saved artifacts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan, while_loop
from torch.utils._pytree import tree_leaves

import litz

# torch's own control flow looks at the gradient of what is no leaf.
pytestmark = [
    pytest.mark.sampled,  # each test compiles whole programs
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

Program = Callable[..., Any]

X = torch.linspace(-1, 1, 12).reshape(4, 3)


def zero() -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64)


def choices(x: torch.Tensor) -> Any:
    def choose(depth: int, x: torch.Tensor) -> Any:
        if depth == 0:
            return x * 3
        return torch.cond(
            x.sum() > 4 * depth, lambda x: x - depth, lambda x: choose(depth - 1, x + 1) * 2, (x,)
        )

    return choose(3, x - 3)


def loops(x: torch.Tensor) -> Any:
    def repeat(depth: int, x: torch.Tensor) -> Any:
        if depth == 0:
            return x * 1.5
        return while_loop(
            lambda i, a: i < depth, lambda i, a: (i + 1, repeat(depth - 1, a + depth)), (zero(), x)
        )[1]

    return repeat(2, x)


def scans(x: torch.Tensor) -> Any:
    def step(depth: int) -> Program:
        def along(carried: torch.Tensor, row: torch.Tensor) -> Any:
            if depth == 0:
                return carried + row, carried * row
            carried, rows = scan(step(depth - 1), carried * 0.5, row.expand(2, 3) * carried)
            return carried, rows.sum(0) + row

        return along

    return scan(step(1), torch.ones(3), x)


def maps(x: torch.Tensor) -> Any:
    def each(depth: int) -> Program:
        def row(a: torch.Tensor) -> Any:
            return a * 2 if depth == 0 else map_rows(each(depth - 1), torch.stack((a, a.sin()))) + a.sum()

        return row

    return map_rows(each(1), x)


@torch.compiler.nested_compile_region
def inner(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


@torch.compiler.nested_compile_region
def middle(x: torch.Tensor) -> torch.Tensor:
    return inner(x) * inner(x * 2)


@torch.compiler.nested_compile_region
def outer(x: torch.Tensor) -> torch.Tensor:
    return middle(x) + middle(x.cos())


def invocations(x: torch.Tensor) -> Any:
    return outer(x) * outer(x + 1)


def all_kinds(x: torch.Tensor) -> Any:
    def step(carried: torch.Tensor, row: torch.Tensor) -> Any:
        repeated = while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a.sin() * 2), (zero(), row))[1]
        chosen = torch.cond(
            repeated.sum() > 1,
            lambda a: map_rows(lambda e: e * a, a * 1),
            lambda a: a.cos() * a[:, None],
            (repeated,),
        )
        return carried + chosen.sum(0), chosen

    return scan(step, torch.zeros(3), x)


def run(program: Program, x: torch.Tensor, train: bool) -> list[torch.Tensor]:
    """Return results, and with ``train`` the gradient of a sum that weights them unevenly."""
    x = x.clone().requires_grad_(train)
    results = tree_leaves(program(x))
    if train:
        weighted = [(r * torch.linspace(0.5, 1.5, r.numel()).reshape(r.shape)).sum() for r in results]
        torch.stack(weighted).sum().backward()
        assert x.grad is not None
        results = [*results, x.grad]
    return [each.detach() for each in results]


def agrees(program: Program, *inputs: torch.Tensor, train: bool = False, dynamic: bool = False) -> None:
    """Compare a program, compiled once without fallback, with eager for each of the inputs."""
    torch._dynamo.reset()
    with litz.config.patch(fallback="error", verify=True):
        compiled = torch.compile(program, backend="litz", fullgraph=True, dynamic=dynamic)
        for x in inputs:
            torch.testing.assert_close(run(compiled, x, train), run(program, x, train), check_stride=True)


@pytest.mark.parametrize("program", [loops, maps, invocations], ids=lambda p: p.__name__)
def test_regions_of_one_kind_inside_one_another(program: Program) -> None:
    agrees(program, X, X + 5)


@pytest.mark.parametrize("program", [choices, loops, maps, invocations], ids=lambda p: p.__name__)
def test_gradients_of_regions_of_one_kind_inside_one_another(program: Program) -> None:
    agrees(program, X, X + 2.5, X + 3.5, X + 5, train=True)


@pytest.mark.parametrize("program", [scans, all_kinds], ids=lambda p: p.__name__)
def test_scans_with_regions_inside(program: Program) -> None:
    agrees(program, X, X + 1, dynamic=True)


def test_saved_regions_inside_one_another(tmp_path: Path) -> None:
    class Saved(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return choices(x), all_kinds(x)

    loaded, saved = litz.load(litz.aot_compile(Saved(), (X,), path=tmp_path / "model.litz")), Saved()
    for x in (X, X + 2.5, X + 3.5, X + 5):
        torch.testing.assert_close(tree_leaves(loaded(x)), tree_leaves(saved(x)), check_stride=True)


def test_gradients_of_scans_whose_carried_gradient_is_expanded() -> None:
    def vectors(x: torch.Tensor) -> Any:
        carried, sums = scan(lambda c, v: (c * v, c.sum()), torch.ones(3), x)
        return carried.sum() + sums.sum()

    def matrices(x: torch.Tensor) -> Any:
        start = torch.ones(2, 3) * x[:2]
        carried, _ = scan(lambda c, v: (c * v + c.sin(), c.sum(0)), start, x)
        return carried.sum(1), carried[:, 1]

    x = torch.arange(12.0).reshape(4, 3)
    agrees(vectors, x, train=True)
    agrees(matrices, x, train=True, dynamic=True)
