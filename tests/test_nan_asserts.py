"""Assertions on NaN at the borders of compiled graphs: errors name graph, value and line, and without the option
results are eager's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import litz
from litz_codegen_cpp.target import CpuTarget
from litz_ir.errors import NanFound

NAN = float("nan")


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path) -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(cache_dir=str(tmp_path)):
        yield


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the function with assertions on its graphs, by Inductor's name for that option."""
    made: Callable[..., Any] = torch.compile(function, backend="litz", options={"nan_asserts": True})
    return made


def root(x: Tensor) -> Tensor:
    return (x - 1).sqrt() + 1


def test_results_and_inputs_are_named() -> None:
    call = compiled(root)
    assert torch.equal(call(torch.ones(4)), torch.ones(4))
    with pytest.raises(
        NanFound, match=r"(?s)the result add\w* of inference_\d+ contains NaN.*test_nan_asserts\.py"
    ):
        call(torch.zeros(4))
    with pytest.raises(
        AssertionError, match=r"(?s)the input \w+ of inference_\d+ contains NaN.*\(x - 1\)\.sqrt\(\)"
    ):
        call(torch.tensor([1.0, 2.0, NAN, 3.0]))
    assert torch.equal(call(torch.ones(4)), torch.ones(4)), "the compiled graph is as it was"


def test_gradients_are_named_by_their_backward() -> None:
    x = torch.zeros(4, requires_grad=True)
    result = compiled(lambda x: (x.sqrt() * x).sum())(x)
    assert result == 0
    with pytest.raises(NanFound, match=r"of backward_\d+ contains NaN"):
        result.backward()


def test_nothing_is_asserted_where_nobody_asks() -> None:
    call = torch.compile(root, backend="litz")
    assert call(torch.zeros(4)).isnan().all()
    kept = compiled(root)  # what is found in the cache is asserted too
    with pytest.raises(NanFound):
        kept(torch.zeros(4))


def test_what_a_graph_overwrites_is_named() -> None:
    def halved(x: Tensor) -> Tensor:
        x.copy_(x.log())
        return torch.ones_like(x)

    with pytest.raises(NanFound, match=r"the overwritten input \w+ of inference"), torch.no_grad():
        compiled(halved)(-torch.ones(4))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64, torch.float8_e5m2])
def test_dtypes(dtype: torch.dtype) -> None:
    call = compiled(lambda x, n: (x.clone(), n + 1))
    given = torch.ones(4).to(dtype)
    assert call(given, torch.arange(3))[1].tolist() == [1, 2, 3]
    with pytest.raises(NanFound, match="the input"):
        call(torch.full((4,), NAN).to(dtype), torch.arange(3))


def test_graphs_that_run_as_they_came_are_asserted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError("injected")

    monkeypatch.setattr(CpuTarget, "emit", refuse)
    with litz.config.patch(fallback="silent"), pytest.raises(NanFound, match="the result"):
        compiled(root)(torch.zeros(4))


def test_training_whose_buffers_are_written() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    call = compiled(model)
    call(torch.randn(5, 3)).sum().backward()
    with pytest.raises(NanFound, match=r"the input \w+ of forward_\d+"):
        call(torch.full((5, 3), NAN))
    assert not any(each.isnan().any() for each in model.buffers())
