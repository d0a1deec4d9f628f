"""Gradients of tensors that score functions of FlexAttention capture, against eager."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
import torch
from flex_attention_variants import (
    FULL_MASK,
    KEYS,
    MASKS,
    OPTIONS,
    PAGES,
    QUERIES,
    SHAPES,
    SLOPES,
    TABLE,
    Variant,
    alibi,
    attention,
    biased,
    bucketed,
    causal,
    everything,
    from_the_end,
    gradients,
    mask_tensors,
    operands,
    paged,
    second_half,
    window,
)
from hypothesis import given as given_by
from hypothesis import settings
from lowering_check import captured
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from litz_ir.loops import Pointwise, Reduction, Scatter
from litz_ir.scalar import nested_reductions
from litz_lowering import LoweringOptions

pytestmark = pytest.mark.sampled


def of_points(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, bias: Tensor) -> Tensor:
    return score + bias[b, h, m, n]


def of_pairs(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, bias: Tensor) -> Tensor:
    return score + bias[m, n]


def of_keys(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, bias: Tensor) -> Tensor:
    return score + bias[h, n]


def of_queries(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, gate: Tensor) -> Tensor:
    return score * gate[b, m]


def scaled(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, scale: Tensor) -> Tensor:
    return score * torch.exp(scale[h])


def tempered(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, temperature: Tensor) -> Tensor:
    return score * temperature[0]


def twice(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, slope: Tensor, bias: Tensor) -> Tensor:
    return score * slope[h] + bias[m] * bias[n] + slope[h // 2]


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


LEARNED = {
    "slopes": Variant(alibi, causal, (SLOPES,)),
    "distances": Variant(biased, causal, (TABLE,)),
    "distances from the end": Variant(from_the_end, causal, (TABLE,)),
    "buckets": Variant(bucketed, everything, (TABLE[:, :8].contiguous(),)),
    "points": Variant(of_points, second_half, (drawn(2, 4, QUERIES, KEYS),)),
    "pairs": Variant(of_pairs, causal, (drawn(QUERIES, KEYS),)),
    "keys": Variant(of_keys, causal, (drawn(4, KEYS),)),
    "queries": Variant(of_queries, everything, (drawn(2, QUERIES),)),
    "scales": Variant(scaled, everything, (SLOPES,)),
    "temperature": Variant(tempered, causal, (torch.tensor([0.7]),)),
    "pages": Variant(paged, everything, (PAGES, torch.tensor([0.5, 1.0, -1.0]))),
    "several": Variant(twice, causal, (drawn(4), drawn(KEYS))),
}


@pytest.mark.parametrize("name", LEARNED)
def test_gradients_of_captured_tensors(name: str) -> None:
    gradients(LEARNED[name], *operands(), learned=True)


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_of_captured_tensors_by_shape(name: str) -> None:
    for variant in (LEARNED["slopes"], LEARNED["distances"], LEARNED["keys"]):
        gradients(variant, *SHAPES[name], learned=True)


@pytest.mark.parametrize("sizes", [(48, 64), (40, 56)], ids=["whole blocks", "a rest"])
@pytest.mark.parametrize("name", MASKS)
def test_gradients_of_captured_tensors_by_listed_blocks(name: str, sizes: tuple[int, int]) -> None:
    """Tables with an element for each point, for each distance and for each key."""
    mask, batch, heads, how = MASKS[name]
    blocks = create_block_mask(mask, batch, heads, *sizes, device="cpu", BLOCK_SIZE=16).as_tuple()
    given = operands(queries=sizes[0], keys=sizes[1], **how)

    def distant(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, table: Tensor) -> Tensor:
        return score + table[h, m - n + 64]

    tables = ((distant, drawn(4, 128)), (of_points, drawn(2, 4, *sizes)), (of_keys, drawn(4, sizes[1])))
    for score, table in tables:
        gradients(Variant(score, mask, (table,)), *given, blocks=blocks, learned=True)


@pytest.mark.parametrize("name", ["slopes", "distances", "points"])
def test_gradients_of_captured_tensors_of_other_dtypes_and_sizes(name: str) -> None:
    variant = LEARNED[name]
    narrow = Variant(variant.score_mod, variant.mask_mod, (variant.score_captures[0].bfloat16(),))
    # Eager accumulates in bf16.
    gradients(narrow, *operands(dtype=torch.bfloat16), learned=True, rounding=0.2)
    gradients(variant, *operands(), learned=True, dynamic=True)


@settings(max_examples=12, deadline=None)
@given_by(data=st.data())
def test_gradients_of_captured_tensors_of_any_shape(data: st.DataObject) -> None:
    """Heads and groups, lengths that are no multiples of blocks, masks with and without lists, larger tables."""
    shared, group = data.draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2)]))
    queries, keys = (data.draw(st.integers(1, 40)) for _ in range(2))
    given = operands(shared * group, shared, of_keys=data.draw(st.integers(1, 2)), queries=queries, keys=keys)
    mask = data.draw(st.sampled_from([everything, causal, window]))
    size = data.draw(st.sampled_from([16, 128]))
    blocks = create_block_mask(mask, None, None, queries, keys, device="cpu", BLOCK_SIZE=size).as_tuple()

    def learned(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, *tables: Tensor) -> Tensor:
        distance, rows, points = tables
        return score * (1 + rows[h, m]) + distance[h, m - n + keys] + points[b, h, m, n]

    heads, more = shared * group, data.draw(st.integers(0, 2))
    tables = (
        drawn(heads, queries + keys),
        drawn(heads, queries + more),
        drawn(2, heads, queries + more, keys),
    )
    gradients(Variant(learned, mask, tables), *given, blocks=blocks, learned=True)


@pytest.mark.parametrize("queries", [1, 5])
def test_gradients_of_attention_to_one_key(queries: int) -> None:
    blocks = create_block_mask(everything, None, None, queries, 1, device="cpu", BLOCK_SIZE=16).as_tuple()
    given = operands(2, 2, of_keys=1, queries=queries, keys=1)

    def learned(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, points: Tensor) -> Tensor:
        return score + points[b, h, m, n]

    gradients(Variant(learned, everything, (drawn(2, 2, queries, 1),)), *given, blocks=blocks, learned=True)


def learned_kinds(variant: Variant, options: LoweringOptions) -> list[str]:
    """Kinds of operations that compute gradients of captured tensors: sums, scatters or pointwise operations."""
    given = [x.requires_grad_() for x in (*operands(), *(x.detach().clone() for x in variant.score_captures))]
    queries, keys, values, *tables = given
    compiled, interpreted = captured(attention(variant, FULL_MASK), options=options)
    compiled(queries, keys, values, *mask_tensors(FULL_MASK), *tables)[0].sum().backward()
    backward = interpreted.lowered[1].graph
    sums = [
        each
        for each in backward.operations
        if isinstance(each, Reduction) and nested_reductions(*each.bodies)
    ]
    scatters = [
        each for each in backward.operations if isinstance(each, Scatter) and nested_reductions(each.body)
    ]
    elements = [
        each
        for each in backward.operations
        if isinstance(each, Pointwise) and nested_reductions(*each.bodies)
    ]
    return ["sum"] * (len(sums) - 3) + ["scatter"] * len(scatters) + ["elements"] * len(elements)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "sum") for name in ("slopes", "scales", "queries", "keys", "temperature")),
        *((name, "scatter") for name in ("distances", "pairs", "buckets")),
        ("points", "elements"),
    ],
)
def test_gradients_independent_of_queries_or_keys_are_summed_first(name: str, kind: str) -> None:
    assert learned_kinds(LEARNED[name], OPTIONS) == [kind]


def test_deterministic_gradients_of_captured_tensors_fall_back() -> None:
    deterministic = replace(OPTIONS, deterministic=True)
    assert learned_kinds(LEARNED["distances"], deterministic) == []


def test_gradients_of_computed_captured_tensors_fall_back() -> None:
    """The score function computes on the whole tensor first, so its gradient is no sum over elements."""

    def grown(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, slope: Tensor) -> Tensor:
        return score + (n - m) * torch.exp(slope)[h]

    variant = Variant(grown, causal, (SLOPES,))
    assert learned_kinds(variant, OPTIONS) == []
    gradients(variant, *operands())
    gradients(variant, *operands(), learned=True, allowed=("aten.bmm",))
