"""`size_asserts`, `alignment_asserts` and `deterministic`: what host programs assert, and what calls run under."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import litz
from litz.settings import Config
from litz_ir.errors import InputMismatch, Misaligned

X = torch.arange(12.0).view(3, 4)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        yield
    torch._dynamo.reset()


def program(x: Tensor) -> Tensor:
    return torch.softmax(x * 2, -1) + 1


def compiled_graph(**options: bool) -> object:
    """The program as a graph without guards, which callers can give other tensors than it was compiled for."""
    return litz.compile_fx_inner(
        make_fx(program, tracing_mode="fake")(X), [X], config=litz.config.current().replaced(options)
    )


@pytest.mark.parametrize(
    "wrong, words",
    [
        (
            X.t().contiguous(),
            r"the input x_1 is \(4, 3\) of torch.float32, the graph was compiled for \(3, 4\)",
        ),
        (X.double(), r"is \(3, 4\) of torch.float64"),
        (X.t().contiguous().t(), r"has strides \(1, 3\), the graph was compiled for \(4, 1\)"),
    ],
    ids=["shape", "dtype", "strides"],
)
def test_another_input_than_a_graph_was_compiled_for(wrong: Tensor, words: str) -> None:
    call = compiled_graph(size_asserts=True)
    torch.testing.assert_close(call(X), program(X))
    with pytest.raises(InputMismatch, match=words) as caught:
        call(wrong)
    assert isinstance(caught.value, AssertionError) and "guards of Dynamo" in str(caught.value)


def test_symbolic_sizes_are_asserted_too() -> None:
    compiled = torch.compile(program, backend="litz", dynamic=True, options={"size_asserts": True})
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), program(x))


def test_an_address_that_is_no_multiple_of_the_element() -> None:
    aside = torch.frombuffer(bytearray(65), dtype=torch.float32, offset=1, count=12).view(3, 4)
    compiled = torch.compile(program, backend="litz", options={"alignment_asserts": True})
    torch.testing.assert_close(compiled(X), program(X))
    with pytest.raises(Misaligned, match=r"lies at 0x\w+, which is no multiple of 4 bytes") as caught:
        compiled(aside)
    assert "clone()" in str(caught.value)
    assert torch.compile(program, backend="litz")(aside) is not None, "without the option nothing is asserted"


def test_host_programs_have_the_assertions_that_are_asked_for() -> None:
    for options, words in (({}, ()), ({"size_asserts": True}, ("assert_sizes(",)),
                           ({"alignment_asserts": True}, ("assert_aligned(",))):  # fmt: skip
        torch._dynamo.reset()
        with litz.config.patch(**options):
            (graph,) = litz.explain(program, X).graphs
        assert all(word in graph.source for word in words)
        assert graph.source.count("assert_") == len(words)
        assert graph.promises == ", ".join(options)


def test_deterministic_calls_run_as_under_torchs_setting(tmp_path: Path) -> None:
    seen = []

    @torch.library.custom_op("litz_test::seen_setting", mutates_args=())
    def seen_setting(x: Tensor) -> Tensor:
        seen.append(torch.are_deterministic_algorithms_enabled())
        return x.clone()

    seen_setting.register_fake(torch.empty_like)

    def calls(x: Tensor) -> Tensor:
        return seen_setting(x + 1) * 2

    for deterministic in (True, False):
        torch._dynamo.reset()
        found = torch.compile(calls, backend="litz", options={"deterministic": deterministic})(X)
        torch.testing.assert_close(found, (X + 1) * 2)
        assert seen.pop() is deterministic
        assert not torch.are_deterministic_algorithms_enabled(), "the setting is as it was"
    for written, wanted in ((True, False), (False, False), (False, True)):
        options = {"deterministic": written}
        path = litz.aot_compile(calls, (X,), path=tmp_path / "model.litz", options=options)
        with litz.config.patch(deterministic=wanted):
            model = litz.load(path)
        torch.testing.assert_close(model(X), (X + 1) * 2)
        assert seen.pop() is (written or wanted)


def test_nothing_is_tuned_where_results_have_to_repeat() -> None:
    assert not Config(autotune=True, deterministic=True).in_force().autotune
    assert Config(autotune=True).in_force().autotune
