"""Warm starts of graphs with constants: their entries are found without lowering."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import litz
import litz_lowering
from litz.compilation.constants import attribute_positions, constants_at


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of graphs that are lowered from now on."""
    names: list[str] = []
    lower: Callable[..., Any] = litz_lowering.lower

    def counted(gm: GraphModule, **options: Any) -> Any:
        names.append(options["name"])
        return lower(gm, **options)

    monkeypatch.setattr(litz_lowering, "lower", counted)
    return names


def table(x: torch.Tensor) -> torch.Tensor:
    weights = torch.tensor([0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
    return (x * weights).cumsum(-1) + torch.tensor([1, 2, 3, 4, 5, 6])


def other_table(x: torch.Tensor) -> torch.Tensor:
    weights = torch.tensor([0.5, 1.0, 1.5, 2.0, 2.5, 3.5])
    return (x * weights).cumsum(-1) + torch.tensor([1, 2, 3, 4, 5, 6])


def branches(x: torch.Tensor) -> torch.Tensor:
    def over(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])

    def under(x: torch.Tensor) -> torch.Tensor:
        return x - torch.tensor([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])

    result: torch.Tensor = torch.cond(x.sum() > 0, over, under, (x,))
    return result


def values(function: Callable[..., Any], folder: Path) -> None:
    """Compile a function anew with this cache folder, and compare it with eager."""
    torch._dynamo.reset()
    with litz.config.patch(cache_dir=str(folder), fallback="error"), torch.no_grad():
        compiled = torch.compile(function, backend="litz", fullgraph=True)
        for x in (torch.ones(4, 6), -torch.ones(4, 6)):
            torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.parametrize("function", [table, branches])
def test_constants_are_found_without_lowering(
    function: Callable[..., Any], tmp_path: Path, lowered: list[str]
) -> None:
    values(function, tmp_path)
    assert len(lowered) == 1
    values(function, tmp_path)
    assert len(lowered) == 1


def test_other_constants_are_another_graph(tmp_path: Path, lowered: list[str]) -> None:
    values(table, tmp_path)
    values(other_table, tmp_path)
    assert len(lowered) == 2


def test_training_graphs_with_constants(tmp_path: Path, lowered: list[str]) -> None:
    for _ in range(2):
        torch._dynamo.reset()
        x = torch.ones(4, 6, requires_grad=True)
        with litz.config.patch(cache_dir=str(tmp_path), fallback="error"):
            torch.compile(table, backend="litz")(x).sum().backward()
        expected = torch.ones(4, 6, requires_grad=True)
        table(expected).sum().backward()
        torch.testing.assert_close(x.grad, expected.grad)
        assert len(lowered) == 2


def test_positions_name_attributes_alone() -> None:
    known = torch.arange(12.0).reshape(3, 4)
    gm = make_fx(lambda x: x + known.t())(torch.ones(4, 3))
    (name,) = (str(node.target) for node in gm.graph.nodes if node.op == "get_attr")
    tensor = getattr(gm, name)
    positions = attribute_positions(gm, {"known": tensor})
    assert positions is not None
    assert constants_at(gm, positions)["known"].data_ptr() == tensor.data_ptr()
    assert attribute_positions(gm, {"known": tensor, "made": tensor.clone()}) is None
    assert attribute_positions(gm, {"known": tensor[1:]}) is None
    with pytest.raises(KeyError):
        constants_at(gm, [("known", (99,))])
