"""FlexAttention on a CPU: eager's values by one kernel, whose scores are never in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import litz

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

GENERATOR = torch.Generator().manual_seed(0)
SLOPES, CAPS = torch.rand(4, generator=GENERATOR), torch.rand(2, 4, 300, generator=GENERATOR)
BIAS = torch.randn(2, 4, 300, 300, generator=GENERATOR)
DOCUMENT = torch.arange(300) // 70

Case = tuple[dict[str, Any], dict[str, Any]]


def causal(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return m >= n


def late(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return m > n + 150


def same_document(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (m >= n) & (DOCUMENT[m] == DOCUMENT[n])


def of_head(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (h % 2 == 0) | (m >= n)


def mask(
    function: Callable[..., Tensor], queries: int, keys: int, block: int = 128, heads: int | None = None
) -> Any:
    return create_block_mask(function, None, heads, queries, keys, device="cpu", BLOCK_SIZE=block)


def tensors(
    heads: tuple[int, int] = (4, 4), lengths: tuple[int, int] = (300, 300), widths: tuple[int, int] = (64, 64),
    dtype: torch.dtype = torch.float32, transposed: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, n, length, w) for n, length, w in zip(
        (heads[0], heads[1], heads[1]), (lengths[0], lengths[1], lengths[1]), (widths[0], *widths), strict=True
    )]  # fmt: skip
    made = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in made) if transposed else tuple(made)


CASES: dict[str, Case] = {
    "plain": ({}, {}),
    "of_transposed_heads": ({"transposed": True}, {"scale": 0.3}),
    "slopes": ({}, {"score_mod": lambda s, b, h, m, n: s + (n - m) * SLOPES[h]}),
    "caps": ({}, {"score_mod": lambda s, b, h, m, n: torch.tanh(s * CAPS[b, h, m]) * 4}),
    "bias": ({}, {"score_mod": lambda s, b, h, m, n: s + BIAS[b, h, m, n]}),
    "causal": ({}, {"block_mask": mask(causal, 300, 300)}),
    "short_blocks": ({"lengths": (256, 256)}, {"block_mask": mask(causal, 256, 256, 32)}),
    "no_keys": ({}, {"block_mask": mask(late, 300, 300)}),
    "documents": ({"dtype": torch.bfloat16}, {"block_mask": mask(same_document, 300, 300)}),
    "mask_of_heads": ({}, {"block_mask": mask(of_head, 300, 300, heads=4)}),
    "grouped": ({"heads": (4, 2)}, {"enable_gqa": True, "block_mask": mask(causal, 300, 300)}),
    "widths": ({"widths": (40, 24), "lengths": (70, 300)}, {}),
    "few": ({"lengths": (1, 300), "dtype": torch.float16}, {}),
    "few_with_slopes": ({"lengths": (5, 300)}, {"score_mod": lambda s, b, h, m, n: s + (n - m) * SLOPES[h]}),
}


def agrees(program: Callable[..., Any], arguments: tuple[Tensor, ...], dynamic: bool = False) -> None:
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        found = torch.compile(program, backend="litz", fullgraph=True, dynamic=dynamic)(*arguments)
    tolerance = 2e-5 if arguments[0].dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found, program(*arguments), atol=tolerance, rtol=tolerance)


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_eager(name: str) -> None:
    made, arguments = CASES[name]
    agrees(lambda q, k, v: flex_attention(q, k, v, **arguments), tensors(**made))


@pytest.mark.parametrize("lengths", [(300, 300), (5, 64)])
def test_lengths_may_be_symbols(lengths: tuple[int, int]) -> None:
    agrees(lambda q, k, v: flex_attention(q * 2, k, v).relu(), tensors(lengths=lengths), dynamic=True)


@pytest.mark.filterwarnings("ignore:return_lse is deprecated")
def test_logarithms_are_returned() -> None:
    def program(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, return_lse=True, block_mask=mask(causal, 300, 300))

    agrees(program, tensors())


def test_infinities_and_nans_are_those_of_eager() -> None:
    def program(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v)

    q, k, v = tensors(lengths=(70, 130))
    k[0, 0, 3, 0], k[0, 1, 5, 1], v[1, 0, 7, 2] = float("nan"), float("inf"), float("inf")
    torch._dynamo.reset()
    found = torch.compile(program, backend="litz", fullgraph=True)(q, k, v)
    torch.testing.assert_close(found, program(q, k, v), atol=2e-5, rtol=2e-5, equal_nan=True)


def test_one_kernel_computes_blocks_of_scores() -> None:
    blocks = mask(causal, 300, 300)
    report = litz.explain(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), *tensors())
    (graph,) = (each for each in report.graphs if each.kernels)
    assert len(graph.kernels) == 1
    assert "attention_scores<64, 64>" in "".join(graph.units)
    assert graph.plan is not None
    assert isinstance(graph.plan.peak, int)
    assert graph.plan.peak < 2 * 4 * 300 * 300 * 4


def test_wide_heads_stay_matmuls() -> None:
    arguments = tensors(lengths=(20, 64), widths=(260, 260))
    agrees(lambda q, k, v: flex_attention(q, k, v), arguments)
    report = litz.explain(lambda q, k, v: flex_attention(q, k, v), *arguments)
    assert all("attention_scores" not in unit for graph in report.graphs for unit in graph.units)


@pytest.mark.parametrize("queries", [1, 7])
def test_few_queries_walk_the_listed_blocks_of_keys(queries: int) -> None:
    def late(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
        return (n > m + 200) & (h != 2)

    blocks = create_block_mask(late, None, 4, queries, 300, device="cpu")
    arguments = tensors(lengths=(queries, 300))
    agrees(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), arguments)
    report = litz.explain(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), *arguments)
    assert any("attention_few_scores" in unit for graph in report.graphs for unit in graph.units)
