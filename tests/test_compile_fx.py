"""Compilation of graphs from callers: traced, exported, with nested inputs and results; and state that it leaves
unchanged."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import litz
from litz import compile_fx
from litz_lowering import decompositions


class Pair(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(x)
        return y.relu(), y.softmax(-1)


def test_a_graph_that_returns_a_dict() -> None:
    def function(x: torch.Tensor) -> dict[str, Any]:
        y = x * 2
        return {"a": y, "rest": [y + 1, y.sum()]}

    gm = torch.fx.symbolic_trace(function)
    x = torch.randn(3, 4)
    got, want = litz.compile_fx(gm, [x])(x), function(x)
    assert got.keys() == want.keys()
    torch.testing.assert_close(got, want)


def test_nested_inputs() -> None:
    def function(xs: list[torch.Tensor], y: torch.Tensor) -> torch.Tensor:
        return xs[0] * y + xs[1].tanh()

    gm = make_fx(function)([torch.randn(3), torch.randn(3)], torch.randn(3))
    flat = [torch.randn(3), torch.randn(3)]
    y = torch.randn(3)
    compiled = litz.compile_fx(gm, [flat, y])
    torch.testing.assert_close(compiled(flat, y), function(flat, y))


def test_an_exported_module() -> None:
    model, x = Pair(), torch.randn(5, 6)
    exported = torch.export.export(model, (x,)).module()
    assert isinstance(exported, torch.fx.GraphModule)
    with torch.no_grad():
        torch.testing.assert_close(litz.compile_fx(exported, [x])(x), model(x))


def test_an_aten_graph_without_autograd() -> None:
    x, w = torch.randn(5, 6), torch.randn(6, 3)
    one = make_fx(
        lambda x, w: torch.sigmoid(x @ w), decomposition_table=decompositions(), tracing_mode="fake"
    )(x, w)
    torch.testing.assert_close(litz.compile_fx_inner(one, [x, w])(x, w), torch.sigmoid(x @ w))
    many = make_fx(lambda x, w: (x + 1, w * 2), decomposition_table=decompositions(), tracing_mode="fake")(
        x, w
    )
    torch.testing.assert_close(list(litz.compile_fx_inner(many, [x, w])(x, w)), [x + 1, w * 2])


@pytest.mark.parametrize("wanted", [True, False])
def test_the_garbage_collector_is_as_it_was(wanted: bool) -> None:
    seen: list[bool] = []

    def observe(compiled: object) -> None:
        seen.append(gc.isenabled())

    def backend(gm: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return compile_fx(gm, inputs, observers=(observe,))

    before = gc.isenabled()
    (gc.enable if wanted else gc.disable)()
    try:
        with litz.config.patch(cache=False):
            x = torch.randn(5, requires_grad=True)
            torch.compile(lambda x: torch.sin(x).sum(), backend=backend)(x).backward()
            assert gc.isenabled() == wanted
            with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
                with litz.config.patch(compiler="/nowhere/g++", fallback="error"):
                    torch.compile(lambda x: torch.cos(x), backend="litz")(torch.randn(5))
            assert gc.isenabled() == wanted
    finally:
        (gc.enable if before else gc.disable)()
    assert len(seen) == 2
