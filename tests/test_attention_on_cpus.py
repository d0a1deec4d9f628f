"""Attention of every spelling on a CPU: eager's values and gradients by kernels that store no scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

import litz
from litz_ir.plan import CallStep

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

GENERATOR = torch.Generator().manual_seed(0)
SEEN = torch.rand(150, 150, generator=GENERATOR) > 0.5
SEEN[3] = False
BIAS = torch.randn(2, 1, 1, 150, generator=GENERATOR)
HIDDEN = torch.zeros(150, 150).masked_fill(torch.ones(150, 150).triu(1).bool(), -math.inf)

Program = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def every_width_in_blocks() -> Iterator[None]:
    """Compute calls in blocks whatever the machine's library is good at."""
    with litz.config.patch(force="attention_width=256 narrow_attention_width=256"):
        yield


def tensors(
    queries: int = 150, heads: tuple[int, int] = (4, 4), widths: tuple[int, int] = (24, 24),
    dtype: torch.dtype = torch.float32, keys: int = 150,
) -> tuple[Tensor, ...]:  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    shapes = (
        (2, heads[0], queries, widths[0]),
        (2, heads[1], keys, widths[0]),
        (2, heads[1], keys, widths[1]),
    )
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)


def transposed(*arguments: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in arguments)


CALLS: dict[str, tuple[tuple[Tensor, ...], dict[str, Any]]] = {
    "plain": (tensors(), {}),
    "causal": (tensors(), {"is_causal": True}),
    "causal_of_fewer_queries": (tensors(queries=37), {"is_causal": True}),
    "causal_of_more_queries": (tensors(keys=70), {"is_causal": True}),
    "grouped": (tensors(heads=(4, 2)), {"is_causal": True, "enable_gqa": True}),
    "grouped_of_all_keys": (tensors(heads=(4, 1)), {"enable_gqa": True, "scale": 0.3}),
    "seen": (tensors(), {"attn_mask": SEEN}),
    "bias": (tensors(), {"attn_mask": BIAS}),
    "bias_of_keys": (tensors(), {"attn_mask": BIAS[0, 0]}),
    "transposed": (transposed(*tensors()), {}),
    "one_key": (tensors(keys=1), {}),
    "wide": (tensors(widths=(256, 256)), {}),
    "bf16": (tensors(dtype=torch.bfloat16), {"is_causal": True}),
    "f16": (tensors(dtype=torch.float16), {}),
}


def compiled(program: Program) -> Any:
    torch._dynamo.reset()
    return torch.compile(program, backend="litz", fullgraph=True)


def agrees(found: Tensor, eager: Tensor, exact: Tensor) -> None:
    """Require eager's layout, its NaNs, and an error of at most four times its own."""
    assert found.shape == eager.shape
    assert found.dtype == eager.dtype
    assert found.stride() == eager.stride()
    assert torch.equal(found.isnan(), eager.isnan())
    own = (eager.double() - exact).nan_to_num(0).abs().max()
    error = (found.double() - exact).nan_to_num(0).abs().max()
    assert error <= 4 * own + 1e-7, (error, own)


def doubled(*arguments: Tensor) -> list[Tensor]:
    return [x.double() for x in arguments]


def forward(program: Program, *arguments: Tensor) -> None:
    with torch.no_grad(), litz.config.patch(fallback="error"):
        agrees(compiled(program)(*arguments), program(*arguments), program(*doubled(*arguments)))


def is_in_blocks(program: Program, *arguments: Tensor) -> bool:
    torch._dynamo.reset()  # else widths that differ between calls become symbols
    with torch.no_grad():
        report = litz.explain(program, *arguments)
    return any("_scores<" in unit for graph in report.graphs for unit in graph.units)


@pytest.mark.sampled
@pytest.mark.parametrize("name", CALLS)
def test_calls_give_the_values_of_eager(name: str) -> None:
    arguments, options = CALLS[name]

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = options.get("attn_mask")
        mask = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
        return scaled_dot_product_attention(q, k, v, **{**options, "attn_mask": mask})

    forward(program, *arguments)
    assert is_in_blocks(program, *arguments) == (name != "one_key")


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in CALLS if name != "wide"])
def test_gradients_of_calls_are_those_of_eager(name: str) -> None:
    arguments, options = CALLS[name]

    def gradients(program: Program, given: Any) -> tuple[Tensor, ...]:
        given = [x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for x in given]
        result = program(*given)
        direction = torch.linspace(-1, 1, result.numel()).view(result.shape).to(result.dtype)
        return torch.autograd.grad(result, given, direction)

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = options.get("attn_mask")
        mask = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
        return scaled_dot_product_attention(q, k, v, **{**options, "attn_mask": mask})

    with litz.config.patch(fallback="error"):
        found = gradients(compiled(program), arguments)
    for each in zip(
        found, gradients(program, arguments), gradients(program, doubled(*arguments)), strict=True
    ):
        agrees(*each)


def test_gradients_are_the_same_each_time() -> None:
    q, k, v = (x.requires_grad_() for x in tensors(heads=(4, 2)))

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    step = compiled(program)
    first, second = (torch.autograd.grad(step(q, k, v).sum(), (q, k, v)) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_lengths_of_calls_may_be_symbols() -> None:
    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q * 2, k, v, is_causal=True).relu()

    torch._dynamo.reset()
    step = torch.compile(program, backend="litz", fullgraph=True, dynamic=True)
    for length in (150, 67, 300):
        arguments = tensors(queries=length, keys=length)
        with torch.no_grad():
            agrees(step(*arguments), program(*arguments), program(*doubled(*arguments)))


def written(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.softmax(scores if mask is None else scores + mask, -1) @ v


def capped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(torch.tanh(q @ k.mT / 8) * 4, -1) @ v


def merged(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return written(q, k, v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("program", [written, capped, merged], ids=lambda each: str(each.__name__))
@pytest.mark.parametrize("form", ["plain", "transposed", "widths"])
def test_written_attention_gives_the_values_of_eager(program: Program, form: str) -> None:
    arguments = tensors(widths=(24, 40) if form == "widths" else (24, 24))
    arguments = transposed(*arguments) if form == "transposed" else arguments
    forward(program, *arguments)
    assert is_in_blocks(program, *arguments)


def test_written_attention_of_three_dimensions() -> None:
    arguments = tuple(x.flatten(0, 1) for x in tensors())
    forward(written, *arguments)
    assert is_in_blocks(written, *arguments)


@pytest.mark.parametrize("mask", ["rows", "none", "finite"])
def test_rows_without_a_key_are_those_of_eager(mask: str) -> None:
    masks = {
        "rows": torch.zeros(150, 150).masked_fill(~SEEN, -math.inf),
        "none": torch.full((150, 150), -math.inf),
        "finite": torch.full((150, 150), torch.finfo(torch.float32).min),
    }
    forward(written, *tensors(), masks[mask])
    assert is_in_blocks(written, *tensors(), masks[mask])


@pytest.mark.sampled
@pytest.mark.parametrize("at", [(0, 0, 149, 3), (1, 1, 20, 0)])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["key", "value"])
def test_numbers_of_hidden_keys_reach_the_rows_that_they_reach_in_eager(
    place: str, number: float, at: tuple[int, ...]
) -> None:
    q, k, v = tensors()
    (k if place == "key" else v)[at] = number
    with torch.no_grad():
        found, eager = compiled(written)(q, k, v, HIDDEN), written(q, k, v, HIDDEN)
    torch.testing.assert_close(found, eager, atol=2e-6, rtol=2e-5, equal_nan=True)


FEW: dict[str, tuple[tuple[Tensor, ...], dict[str, Any]]] = {
    "one": (tensors(queries=1), {}),
    "one_of_whole_vectors": (tensors(queries=1, widths=(64, 64)), {"scale": 0.5}),
    "grouped": (tensors(queries=1, heads=(8, 2), widths=(48, 48)), {"enable_gqa": True}),
    "five": (tensors(queries=5), {"attn_mask": SEEN[:5]}),
    "fifteen_causal": (tensors(queries=15, dtype=torch.bfloat16), {"is_causal": True}),
    "bias": (tensors(queries=2), {"attn_mask": BIAS}),
    "few_keys": (tensors(queries=3, keys=3), {}),
    "transposed": (transposed(*tensors(queries=4, widths=(100, 100))), {}),
}


@pytest.mark.parametrize("name", FEW)
def test_few_queries_give_the_values_of_eager(name: str) -> None:
    arguments, options = FEW[name]

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = options.get("attn_mask")
        return scaled_dot_product_attention(q, k, v, **{**options, "attn_mask": mask})

    forward(program, *arguments)
    assert is_in_blocks(program, *arguments)


@pytest.mark.parametrize("queries", [2, 6])
def test_few_queries_of_written_attention(queries: int) -> None:
    forward(written, *tensors(queries=queries))
    forward(written, *tensors(queries=queries), HIDDEN[:queries])
    assert is_in_blocks(written, *tensors(queries=queries))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_of_keys_that_few_queries_do_not_see(number: float) -> None:
    q, k, v = tensors(queries=3)
    v[0, 0, 140, 3] = k[0, 1, 4, 0] = number
    with torch.no_grad():
        found, eager = compiled(written)(q, k, v, HIDDEN[:3]), written(q, k, v, HIDDEN[:3])
    torch.testing.assert_close(found, eager, atol=2e-6, rtol=2e-5, equal_nan=True)


def test_calls_stay_where_the_library_is_as_quick() -> None:
    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v)

    with litz.config.patch(force="attention_width=16 narrow_attention_width=0"):
        assert not is_in_blocks(program, *tensors())
        assert not is_in_blocks(program, *tensors(widths=(8, 8), dtype=torch.bfloat16))
        assert is_in_blocks(program, *tensors(widths=(8, 8)))


def test_gradients_of_few_queries_stay_calls() -> None:
    q, k, v = (x.requires_grad_() for x in tensors(queries=2))
    found = torch.autograd.grad(compiled(scaled_dot_product_attention)(q, k, v).sum(), (q, k, v))
    expected = torch.autograd.grad(scaled_dot_product_attention(q, k, v).sum(), (q, k, v))
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-5)


def test_attention_without_blocks_stores_its_scores_and_says_so() -> None:
    """Of constant queries nothing is left of a dot, so that scores are sums of keys alone."""

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(torch.ones_like(q), k, v)

    arguments = tensors(queries=300, keys=300, widths=(64, 64))
    forward(program, *arguments)
    report = litz.explain(program, *arguments)
    assert "flex_attention.blocks" in {each.reason.key for graph in report.graphs for each in graph.decisions}
    plans = [graph.plan for graph in report.graphs if graph.plan is not None]
    assert any(isinstance(step, CallStep) and "mm" in step.target for plan in plans for step in plan.steps)


def test_any_number_of_calls_may_have_no_blocks_also_in_branches() -> None:
    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for number in range(2):
            q = q + flex_attention(torch.ones_like(q), k * (number + 1.5), v)
        return q + flex_attention(q, k, v)

    def branches(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return flex_attention(torch.ones_like(q), k, v)

        def second(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return flex_attention(q, k, v)

        result: Tensor = torch.cond(q.sum() > 1e9, second, first, (q, k, v))
        return result

    arguments = tensors(queries=300, keys=300, widths=(64, 64))
    for each in (program, branches):
        with torch.no_grad(), litz.config.patch(fallback="error"):
            found = compiled(each)(*arguments)
            torch.testing.assert_close(found, each(*arguments), atol=1e-5, rtol=1e-5)
