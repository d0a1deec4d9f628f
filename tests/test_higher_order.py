"""Operators that run functions, against eager: control flow, repeated regions, checkpoints; all of it compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.strict_mode import strict_mode
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import litz
from litz.explain.report import graph_report
from litz.pipeline import Compiled

Program = Callable[..., Any]

# torch's own control flow looks at the gradient of what is no leaf.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

X = torch.linspace(-1, 1, 20).reshape(4, 5)
Y = torch.linspace(2, 0.5, 20).reshape(4, 5)
W = torch.linspace(-0.3, 0.4, 25).reshape(5, 5)
TABLE = torch.arange(20.0).reshape(4, 5)


def compiled_by_litz(function: Program, seen: list[Compiled], dynamic: bool | None) -> Program:
    """``function`` compiled whole; a graph that would run as it came is an error."""

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return litz.compile_fx(gm, inputs, observers=(seen.append,))

    torch._dynamo.reset()
    return torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)


def run(function: Program, args: tuple[Any, ...], train: bool) -> list[Any]:
    """Results, and with ``train`` the gradients of a weighted sum of them; the random stream starts anew."""
    torch.manual_seed(0)
    mine = [a.clone().requires_grad_(train) if isinstance(a, torch.Tensor) else a for a in args]
    results = tree_leaves(function(*mine))
    if not train:
        return results
    wanted = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    weights = [torch.linspace(0.5, 1.5, max(r.numel(), 1))[: r.numel()].reshape(r.shape) for r in wanted]
    torch.autograd.backward(wanted, weights)
    return [*results, *(a.grad for a in mine if isinstance(a, torch.Tensor))]


def check(function: Program, *args: Any, train: bool = False, dynamic: bool | None = None) -> list[Compiled]:
    """Compiled and eager agree on values, strides and gradients; gives the graphs that litz compiled."""
    seen: list[Compiled] = []
    with litz.config.patch(fallback="error", verify=True):
        got = run(compiled_by_litz(function, seen, dynamic), args, train)
    want = run(function, args, train)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        if isinstance(b, torch.Tensor):
            assert a.dtype == b.dtype and a.stride() == b.stride()
    assert seen and all(compiled.artifact is not None for compiled in seen)
    return seen


# --- programs -------------------------------------------------------------------------------------------


def choice(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.cond(
        x.sum() > y.sum(), lambda a, b: (a.sin() + b, a * 2), lambda a, b: (a.cos() * b, a * 3), (x, y)
    )


def nested_choice(x: torch.Tensor, y: torch.Tensor) -> Any:
    def inner(a: torch.Tensor) -> Any:
        return torch.cond(a.mean() > 3, lambda b: b + 1, lambda b: b * 7, (a,))

    return torch.cond(x.sum() < 9, inner, lambda a: a.cos(), (x * y,))


def choice_of_views(x: torch.Tensor, y: torch.Tensor) -> Any:
    rows = (y[0] * 2).expand(3, 5)
    first = torch.cond(x.sum() > 9, lambda a: a.t() + 1, lambda a: a.t() - 1, (x.t(),))
    return first, torch.cond(x.sum() > 9, lambda a: a + 1, lambda a: a - 1, (rows,))


def choice_with_constants(x: torch.Tensor, y: torch.Tensor) -> Any:
    def plus(a: torch.Tensor) -> torch.Tensor:
        return a + torch.tensor([1.0, 2, 3, 4, 5])

    def minus(a: torch.Tensor) -> torch.Tensor:
        return a - torch.tensor([1.0, 2, 3, 4, 6]) * TABLE

    return torch.cond(x.sum() > y.sum(), plus, minus, (x,)) * torch.tensor([1.0, 2, 3, 4, 7])


def loop(x: torch.Tensor, y: torch.Tensor) -> Any:
    start = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, torch.sin(a) * 2), (start, x * y))


def loop_that_never_runs(x: torch.Tensor, y: torch.Tensor) -> Any:
    start = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda i, a: i < 0, lambda i, a: (i + 1, a * 2), (start, x))


def loop_with_choice(x: torch.Tensor, y: torch.Tensor) -> Any:
    def body(i: torch.Tensor, a: torch.Tensor) -> Any:
        return i + 1, torch.cond(a.sum() > 1, lambda b: b * 2, lambda b: b + 1, (a,))

    start = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda i, a: (i < 5) & (a.sum() < 100), body, (start, x))


def recurrence(x: torch.Tensor, w: torch.Tensor) -> Any:
    return scan(lambda c, a: (torch.tanh(c @ w + a), c.sum()), torch.zeros(5), x)


def scan_backwards(x: torch.Tensor, y: torch.Tensor) -> Any:
    return scan(lambda c, a: (c * 0.5 + a, c + a), torch.zeros(4), x, dim=1, reverse=True)


def rows(x: torch.Tensor, y: torch.Tensor) -> Any:
    return map_rows(lambda a, b: a.sin() + b, x, y[0])


@torch.compiler.nested_compile_region
def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sin(x @ w) + x


def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = layer(x, w)
    return x


PROGRAMS: list[tuple[Program, torch.Tensor, bool]] = [
    (choice, Y, True), (nested_choice, Y, True), (choice_of_views, Y, True), (choice_with_constants, Y, False),
    (loop, Y, True), (loop_that_never_runs, Y, True), (loop_with_choice, Y, False),
    (recurrence, W, True), (scan_backwards, Y, True), (rows, Y, True), (layers, W, True),
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(("function", "other", "train"), PROGRAMS, ids=[p[0].__name__ for p in PROGRAMS])
def test_control_flow_is_eagers(function: Program, other: torch.Tensor, train: bool, dynamic: bool) -> None:
    check(function, X, other, train=train, dynamic=dynamic)


def test_both_branches_of_a_choice_are_eagers() -> None:
    check(choice, Y, X)


def test_a_choice_between_sizes() -> None:
    def function(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a[1:].cos(), (x,)) * 2

    check(function, X - 3)
    check(function, X + 3)


def test_a_loop_carries_a_number() -> None:
    def function(x: torch.Tensor) -> Any:
        count, value = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (0, x))
        return value + count

    check(function, X)


def test_strict_mode_is_seen_through() -> None:
    check(lambda x: strict_mode(lambda a: (a + 1,), (x,)), X)


def test_random_numbers_keep_their_order_around_and_inside_control_flow() -> None:
    def function(x: torch.Tensor) -> Any:
        noisy = torch.rand_like(x) + x
        chosen = torch.cond(noisy.sum() > -9, lambda a: F.dropout(a, 0.5), lambda a: a - 1, (noisy,))
        return F.dropout(chosen, 0.3)

    check(function, X)


# --- what is compiled -----------------------------------------------------------------------------------


def test_a_repeated_layer_is_compiled_once_and_called_many_times() -> None:
    forward, backward = check(layers, X, W, train=True)
    for compiled in (forward, backward):
        assert compiled.artifact is not None
        plan = compiled.artifact.plan
        assert len(plan.subplans) == 1
        report = graph_report(compiled)
        assert [region.kind for region in report.regions] == ["invoke"] * 4
        assert compiled.source.count("def ") == 2
    assert forward.artifact is not None
    assert len(forward.artifact.units) == 1 and len(forward.artifact.units[0].kernels) == 1
