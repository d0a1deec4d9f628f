"""`litz.testing`: each tool tells what it is asked, and fails where it should."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import litz
from litz.testing import (
    assert_close_to_eager,
    assert_kernels,
    count_recompiles,
    fresh_cache,
    run_and_get_code,
)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with fresh_cache():
        yield


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x * 2, -1)


def broken(x: Tensor) -> Tensor:
    """Two graphs, with a break between them."""
    y = x.exp()
    torch._dynamo.graph_break()
    return y + 1


def test_code_is_that_of_kernels_and_of_the_host_program() -> None:
    x = torch.randn(8, 40)
    result, code = run_and_get_code(softmax, x)
    torch.testing.assert_close(result, softmax(x))
    assert len(code) == 2
    assert "exp(" in code[0] and "def " in code[1]
    _, both = run_and_get_code(broken, x)
    assert len(both) == 4


def test_kernels_are_counted_and_named() -> None:
    x = torch.randn(8, 40)
    torch.testing.assert_close(assert_kernels(softmax, x, count=1), softmax(x))
    assert_kernels(broken, x, count=2)
    with pytest.raises(AssertionError, match=r"(?s)1 kernels are launched, not 3:.*softmax"):
        assert_kernels(softmax, x, count=3)


def test_a_function_as_in_eager_is_close() -> None:
    def program(x: Tensor, y: Tensor, n: int) -> tuple[Tensor, int]:
        y.add_(1)
        return torch.nn.functional.dropout(x, 0.5) * y, n + 1

    assert_close_to_eager(program, torch.randn(30), torch.ones(30), 3)
    x = torch.randn(4, 5, requires_grad=True)
    assert_close_to_eager(softmax, x, backward=True)
    assert x.grad is None, "the arguments are copies"
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU())
    assert_close_to_eager(model, torch.randn(7, 6), backward=True, rtol=1e-4, atol=1e-5)
    assert all(each.grad is None for each in model.parameters())


@pytest.mark.parametrize(
    ("eager", "compiled", "message"),
    [
        (lambda x: x + 1, lambda x: x + 1.5, "result 0: .*not close"),
        (lambda x: x + 1, lambda x: (x + 1).double(), "result 0: .*dtype"),
        (lambda x: x + 1, lambda x: (x + 1).t(), "result 0: .*stride"),
        (lambda x: (x, 1), lambda x: (x, 2), "result 1 is 2, in eager 1"),
        (lambda x: x + 0, lambda x: x.mul_(2) * 0.5, "input 0 after the call: .*not close"),
    ],
)
def test_a_difference_from_eager_is_named(eager: object, compiled: object, message: str) -> None:
    def program(x: Tensor) -> object:
        chosen = compiled if torch.compiler.is_compiling() else eager
        assert callable(chosen)
        return chosen(x)

    with pytest.raises(AssertionError, match=f"(?s){message}"):
        assert_close_to_eager(program, torch.ones(3, 3))


def test_no_gradient_is_said() -> None:
    with pytest.raises(AssertionError, match="no result requires a gradient"):
        assert_close_to_eager(softmax, torch.ones(2, 2), backward=True)


def test_recompiles_are_counted() -> None:
    compiled = torch.compile(softmax, backend="litz", dynamic=False)
    with count_recompiles() as found:
        compiled(torch.randn(3, 4))
        compiled(torch.randn(3, 4))
        assert found.count == 0
        compiled(torch.randn(5, 4))
    assert found.count == 1 and len(found.compiles) == 2
    compiled(torch.randn(6, 4))
    assert len(found.compiles) == 2, "after the block nothing is counted"


def test_a_fresh_cache_has_nothing_and_leaves_nothing() -> None:
    x = torch.randn(16, 3)
    with fresh_cache() as folder:
        assert os.listdir(folder) == []
        assert litz.config.cache_dir == folder
        torch.compile(softmax, backend="litz")(x)
        assert os.listdir(folder)
    assert not os.path.exists(folder)


def test_counters_tell_what_was_compiled() -> None:
    counters = torch._dynamo.utils.counters
    counters.clear()

    def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return torch.softmax(x @ w, -1), (x + 1).sum()

    x, w = torch.randn(8, 16), torch.randn(16, 40)
    torch.compile(program, backend="litz")(x, w)
    first = dict(counters["litz"])
    assert (first["graphs"], first["cache_misses"], first["fallbacks"]) == (1, 1, 0)
    assert first["kernels"] == first["launches"] == 2 and first["calls"] >= 1
    assert first["fused_operations"] >= 4
    assert "milliseconds.lower" in first and "cache_hits" not in first
    torch._dynamo.reset()
    torch.compile(program, backend="litz")(x, w)
    second = counters["litz"]
    assert (second["graphs"], second["cache_hits"], second["cache_misses"]) == (2, 1, 1)
    assert second["milliseconds.lower"] == first["milliseconds.lower"], "what is found is not compiled"


def test_a_function_is_compared_beyond_the_limit_of_recompilations() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    with torch._dynamo.config.patch(recompile_limit=1):
        for _ in range(3):
            assert_kernels(function, torch.ones(3), count=1)
