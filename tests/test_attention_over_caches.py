"""Attention of few queries over long caches of keys and values: eager's values, read where they are by all threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

import litz

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

KEYS = 777
Program = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def every_width_and_split() -> Iterator[None]:
    """Compute calls in blocks whatever the machine's library is good at, and divide caches of this length too."""
    with litz.config.patch(
        force="attention_width=256 narrow_attention_width=256 cpu_split_bytes=1024", fallback="error"
    ):
        yield


def cache(
    heads: tuple[int, int] = (8, 2), queries: int = 1, width: int = 64, dtype: torch.dtype = torch.float32,
    keys: int = KEYS, layout: str = "heads", batch: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return queries, keys and values; of layout "keys" in memory as (batch, keys, heads, width)."""
    generator = torch.Generator().manual_seed(queries)
    found = []
    for of_heads, length in ((heads[0], queries), (heads[1], keys), (heads[1], keys)):
        shape = (batch, of_heads, length, width)
        x = torch.randn(shape, generator=generator).to(dtype)
        found.append(x.transpose(1, 2).contiguous().transpose(1, 2) if layout == "keys" else x)
    return tuple(found)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    mask = mask.to(q.dtype) if mask is not None and mask.is_floating_point() else mask
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1])


def flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    found: Any = flex_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])
    return found


def written(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = (x[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.softmax(scores if mask is None else scores + mask.to(q.dtype), -1) @ v


def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    group = q.shape[1] // k.shape[1]
    return written(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))


def agrees(program: Program, *arguments: Tensor, dynamic: bool | None = None) -> None:
    """Require eager's values, with an error of at most twice its own."""
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(program, backend="litz", fullgraph=True, dynamic=dynamic)(*arguments)
        close(program, found, *arguments)


def close(program: Program, found: Tensor, *arguments: Tensor) -> None:
    eager = program(*arguments)
    exact = program(*(x.double() if x.is_floating_point() else x for x in arguments))
    assert found.shape == eager.shape
    assert found.stride() == eager.stride()
    assert torch.equal(found.isnan(), eager.isnan())
    own = (eager.double() - exact).nan_to_num(0).abs().max()
    error = (found.double() - exact).nan_to_num(0).abs().max()
    assert error <= 2 * own + 1e-6, (error, own)


def text_of(program: Program, *arguments: Tensor) -> str:
    torch._dynamo.reset()
    with torch.no_grad():
        report = litz.explain(program, *arguments)
    return "\n".join(unit for graph in report.graphs for unit in graph.units)


FORMS: dict[str, dict[str, Any]] = {
    "one_query": {},
    "eight_queries": {"queries": 8, "heads": (2, 2)},
    "queries_of_a_group": {"queries": 3},
    "many_of_a_group": {"queries": 8, "heads": (8, 1)},
    "no_group": {"heads": (3, 3), "width": 128},
    "one_head": {"heads": (1, 1)},
    "bf16": {"dtype": torch.bfloat16},
    "bf16_wide": {"dtype": torch.bfloat16, "width": 128, "queries": 2},
    "f16_narrow": {"dtype": torch.float16, "width": 24},
    "views": {"layout": "keys", "queries": 5},
    "views_bf16": {"layout": "keys", "dtype": torch.bfloat16},
    "batches": {"batch": 3, "heads": (4, 2), "queries": 2},
    "one_key": {"keys": 1, "queries": 2},
    "two_keys": {"keys": 2},
    "whole_blocks": {"keys": 1024, "queries": 4, "heads": (4, 4)},
    "odd_width": {"width": 100, "queries": 7},
}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("program", "form"),
    [
        *((attend, form) for form in FORMS),
        *((flex, form) for form in ("one_query", "many_of_a_group", "bf16_wide", "views", "two_keys")),
    ],
)
def test_queries_give_the_values_of_eager(program: Program, form: str) -> None:
    agrees(program, *cache(**FORMS[form]))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("program", "form"),
    [
        *((written, name) for name, form in FORMS.items() if "dtype" not in form),
        *((repeated, form) for form in ("one_query", "queries_of_a_group", "views")),
    ],
)
def test_written_queries_give_the_values_of_eager(program: Program, form: str) -> None:
    agrees(program, *cache(**FORMS[form]))


@pytest.mark.sampled
@pytest.mark.parametrize(("program", "queries"), [(attend, 3), (written, 1)])
@pytest.mark.parametrize("kind", ["valid", "none", "nan", "infinite", "of_queries"])
def test_masks_of_positions(program: Program, kind: str, queries: int) -> None:
    mask = torch.zeros(1, 1, queries if kind == "of_queries" else 1, KEYS)
    if kind == "of_queries":
        mask = mask.masked_fill(torch.arange(KEYS) > KEYS - 1 - torch.arange(queries)[:, None], -math.inf)
    elif kind == "none":
        mask[:] = -math.inf
    else:
        mask[..., KEYS // 3 :] = -math.inf
    if kind == "nan":
        mask[..., 5] = math.nan
    if kind == "infinite":
        mask[..., 5] = math.inf
    agrees(program, *cache(queries=queries), mask)


@pytest.mark.parametrize("queries", [1, 4])
def test_masks_of_bools_also_with_rows_of_none(queries: int) -> None:
    seen = torch.arange(KEYS) < torch.arange(queries)[:, None] * 300
    agrees(attend, *cache(queries=queries), seen)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [1, 2])
def test_numbers_in_any_part_of_a_cache(place: int, number: float) -> None:
    for key in (0, KEYS // 2, KEYS - 1):
        arguments = cache(queries=2)
        arguments[place][0, 1, key, 3] = number
        agrees(attend, *arguments)


def test_lengths_may_be_symbols() -> None:
    torch._dynamo.reset()
    step = torch.compile(attend, backend="litz", fullgraph=True)
    with torch.no_grad():
        for length in (700, 641, 1, 64, 3000):
            arguments = cache(keys=length)
            close(attend, step(*arguments), *arguments)


def test_lengths_of_keys_and_values_may_be_different_symbols() -> None:
    """They are equal in any valid call, though nothing says so; the least is read."""
    arguments = cache(layout="keys", keys=900)
    for each in arguments[1:]:
        torch._dynamo.mark_dynamic(each, 2)
    text = text_of(attend, *arguments)
    assert "attention_few_scores<4, 64>" in text
    assert "float keys0" not in text
    torch._dynamo.reset()
    step = torch.compile(attend, backend="litz", fullgraph=True)
    with torch.no_grad():
        for length in (900, 2, 1500):
            arguments = cache(layout="keys", keys=length)
            for each in arguments[1:]:
                torch._dynamo.mark_dynamic(each, 2)
            close(attend, step(*arguments), *arguments)


def test_a_cache_is_sliced_to_its_length() -> None:
    """The slice is no tensor of its own: keys are read of the cache."""

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k[:, :, :500], v[:, :, :500])

    agrees(program, *cache())
    assert "float keys0" not in text_of(program, *cache())


def test_positions_of_a_block_mask() -> None:
    def visible(b: Any, h: Any, m: Any, n: Any) -> Any:
        return n < 500

    mask = create_block_mask(visible, None, None, 1, 1024, device="cpu")

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found: Any = flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
        return found

    agrees(program, *cache(keys=1024))


def test_results_are_the_same_each_time() -> None:
    arguments = cache(heads=(4, 1))
    torch._dynamo.reset()
    step = torch.compile(attend, backend="litz")
    with torch.no_grad():
        assert all(torch.equal(step(*arguments), step(*arguments)) for _ in range(3))


def test_caches_are_read_in_place_once_for_all_heads_of_a_group() -> None:
    for dtype, layout in ((torch.float32, "heads"), (torch.bfloat16, "keys")):
        for queries in (1, 4):
            text = text_of(attend, *cache(queries=queries, dtype=dtype, layout=layout))
            assert f"attention_few_scores<{4 * queries}, 64>" in text
            assert "float keys0" not in text
            assert "float values0" not in text


@pytest.mark.parametrize("program", [written, repeated], ids=lambda each: str(each.__name__))
def test_written_groups_are_not_repeated_in_memory(program: Program) -> None:
    for queries in (1, 2):
        text = text_of(program, *cache(queries=queries))
        assert f"attention_few_scores<{4 * queries}, 64>" in text


@pytest.mark.skipif(torch.get_num_threads() < 2, reason="keys are divided among threads")
def test_keys_are_divided_where_heads_are_fewer_than_threads() -> None:
    def is_divided(heads: int) -> bool:
        torch._dynamo.reset()
        with torch.no_grad():
            report = litz.explain(attend, *cache(heads=(heads, heads)))
        return any(each.stage == "split" for graph in report.graphs for each in graph.decisions)

    assert is_divided(1)
    assert not is_divided(2 * torch.get_num_threads())
