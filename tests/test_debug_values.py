"""The option `debug_values`: log lines about values that kernels and library calls compute; results are the same."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import litz
from litz.cache.key import option_facts
from litz.loading import Compiled
from litz.profiling.values import Summary
from litz.settings import Config


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path) -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(cache_dir=str(tmp_path), fallback="error"):
        yield


def root(x: Tensor, w: Tensor) -> Tensor:
    y = torch.sqrt(x - 1)
    z = y @ w
    return z.softmax(-1)


FIRST = root.__code__.co_firstlineno
"""Number of the line that begins the function."""

NAN = float("nan")

X, W = torch.full((4, 6), 5.0), torch.ones(6, 3)


def compiled(function: Callable[..., Any], chosen: str, **options: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(
        function, backend="litz", options={"debug_values": chosen, **options}
    )
    return made


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The reports since the last call."""
    found = [each.getMessage() for each in caplog.records if each.name == "litz"]
    caplog.clear()
    return found


def test_results_with_nan_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    call = compiled(root, "nan")
    assert torch.equal(call(X, W), root(X, W)) and reports(caplog) == []
    low = X.clone()
    low[1] = 0
    found = call(low, W)
    torch.testing.assert_close(found, root(low, W), equal_nan=True)
    first, call_, last = reports(caplog)
    assert re.match(
        r"litz: \w+ of inference_\d+, float32\[4, 6\]: 6 NaN and 0 infinite of 24, values from 2 to 2", first
    )
    assert "by the kernel k0_sqrt, which fuses sub sqrt" in first
    assert f"{Path(__file__).name}:{FIRST + 1}: y = torch.sqrt(x - 1)" in first
    assert "float32[4, 3]: 3 NaN" in call_ and "by the library call aten.mm.default" in call_
    assert f"{Path(__file__).name}:{FIRST + 2}: z = y @ w" in call_
    assert "softmax" in last
    call(low, W)
    assert reports(caplog) == [], "each result is reported once"


def test_infinity_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    compiled(lambda x: x.log(), "nan")(torch.zeros(3))
    (text,) = reports(caplog)
    assert "0 NaN and 3 infinite of 3\n" in text


def test_all_results_are_summarised_in_every_call(caplog: pytest.LogCaptureFixture) -> None:
    call = compiled(root, "all")
    for _ in range(2):
        assert torch.equal(call(X, W), root(X, W))
        square, matmul, softmax = reports(caplog)
        assert "0 NaN and 0 infinite of 24, values from 2 to 2, mean 2\n" in square
        assert "values from 12 to 12, mean 12\n" in matmul
        assert "values from 0.333333 to 0.333333, mean 0.333333\n" in softmax


def test_forward_and_backward(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.zeros(4, requires_grad=True)
    compiled(lambda x: (x.sqrt() * 2).sum(), "nan")(x).backward()
    assert x.grad is not None and x.grad.isinf().all()
    (text,) = reports(caplog)
    assert re.match(r"litz: \w+ of backward_\d+, float32\[4\]: 0 NaN and 4 infinite of 4\n", text)


def test_results_made_in_several_steps_are_complete_when_read(caplog: pytest.LogCaptureFixture) -> None:
    def joined(x: Tensor, y: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        scattered = torch.zeros(80, 40).index_put((rows,), x @ y)
        return torch.cat([x.cumsum(0), (x @ y).cumsum(0)]), scattered.sin()

    x, y, rows = torch.rand(40, 40), torch.rand(40, 40), torch.randperm(80)[:40]
    call = compiled(joined, "nan", fuse=False)
    for _ in range(3):
        torch.empty(3200).fill_(NAN)  # freed memory, which the results may get
        torch.testing.assert_close(call(x, y, rows), joined(x, y, rows))
    assert reports(caplog) == []


@pytest.mark.parametrize(
    "values, expected",
    [
        (torch.tensor([1, 3]), "0 NaN and 0 infinite of 2, values from 1 to 3, mean 2"),
        (torch.tensor([True, False]), "0 NaN and 0 infinite of 2, values from 0 to 1, mean 0.5"),
        (torch.tensor([3 + 4j, NAN]), "1 NaN and 0 infinite of 2, magnitudes from 5 to 5, mean 5"),
        (torch.tensor([1.0, NAN]).to(torch.float8_e5m2), "1 NaN and 0 infinite of 2, values from 1 to 1, mean 1"),
        (torch.empty(0, 3), "no elements"),
        (torch.tensor(float("-inf")), "0 NaN and 1 infinite of 1"),
    ],
)  # fmt: skip
def test_summaries(values: Tensor, expected: str) -> None:
    assert str(Summary(values)) == expected


def test_branches_overwritten_inputs_and_complex_numbers(caplog: pytest.LogCaptureFixture) -> None:
    def branch(x: Tensor) -> Tensor:
        result: Tensor = torch.cond(x.sum() > 0, lambda x: x.log(), lambda x: (-x).exp(), (x,))
        return result

    assert torch.equal(compiled(branch, "nan")(torch.tensor([0.0, 2.0])), branch(torch.tensor([0.0, 2.0])))
    assert "1 infinite of 2" in reports(caplog)[0]

    def halved(x: Tensor) -> None:
        x.div_(0)

    given = torch.ones(3)
    compiled(halved, "nan")(given)
    assert given.isinf().all() and "3 infinite of 3" in reports(caplog)[0]

    z = torch.randn(4, 4, dtype=torch.complex64)
    transformed = compiled(lambda z: torch.fft.fft(z) * 2, "all")(z)
    torch.testing.assert_close(transformed, torch.fft.fft(z) * 2)
    assert any("complex64[4, 4]" in text and "magnitudes" in text for text in reports(caplog))


def test_nothing_changes_where_the_option_is_off(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Compiled] = []
    texts = []
    for chosen in ("off", "nan"):
        torch._dynamo.reset()
        with litz.config.patch(debug_values=chosen):
            options = litz.config.current()

            def backend(gm: Any, inputs: Any) -> Any:
                return litz.compile_fx(gm, inputs, config=options, observers=(seen.append,))  # noqa: B023

            torch.compile(root, backend=backend)(X, W)
        texts.append(option_facts(options))
    assert texts[0] == texts[1] == option_facts(Config(fallback="error"))
    assert [each.artifact is not None and each.artifact.cached for each in seen] == [False, True]
    caplog.clear()
    assert torch.compile(root, backend="litz")(X - 9, W).isnan().all() and reports(caplog) == []


def test_values_are_reported_under_a_profiler_too(caplog: pytest.LogCaptureFixture) -> None:
    call = compiled(root, "nan")
    with caplog.at_level(logging.WARNING), profile(activities=[ProfilerActivity.CPU]) as profiler:
        assert call(X - 9, W).isnan().all()
    assert len(reports(caplog)) == 3
    assert any(event.name.startswith("k0_sqrt: sub, sqrt") for event in profiler.events())


def test_cuda_graphs_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def capture_of(_: int) -> None:
        raise AssertionError("values cannot be read while a graph is captured")

    monkeypatch.setattr("litz.cuda_graphs.cuda_graph.capture_of", capture_of)
    call = compiled(root, "nan", cuda_graphs=True)
    for _ in range(6):
        assert torch.equal(call(X, W), root(X, W))
