"""FlexAttention as loops whose bodies compute scores, against eager, and calls that are not lowered to loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from flex_attention_variants import (
    FULL_MASK,
    KEYS,
    MASKS,
    OPTIONS,
    SHAPES,
    SLOPES,
    TABLE,
    VARIANTS,
    Variant,
    attention,
    bucketed,
    capped,
    causal,
    checked,
    everything,
    from_the_end,
    gradients,
    mask_tensors,
    operands,
    plain,
)
from lowering_check import captured
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import create_block_mask

from litz_ir.loops import NamedCombiner, Reduction
from litz_ir.scalar import Indirect, index, loads, nested_reductions
from litz_ir.symbols import Size, maximum, minimum, symbol
from litz_ir.text import to_text
from litz_lowering import lower

pytestmark = pytest.mark.sampled


@pytest.mark.parametrize("name", VARIANTS)
def test_values(name: str) -> None:
    lowered = checked(VARIANTS[name], *operands())
    (reduction,) = (each for each in lowered.graph.operations if isinstance(each, Reduction))
    assert (
        reduction.combiner == NamedCombiner("softmax_sum") and len(nested_reductions(*reduction.bodies)) == 1
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients(name: str) -> None:
    gradients(VARIANTS[name], *operands())


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    checked(VARIANTS["alibi"], *SHAPES[name])
    gradients(VARIANTS["alibi"], *SHAPES[name])


@pytest.mark.parametrize("name", ["alibi", "documents", "plain"])
def test_symbolic_sizes(name: str) -> None:
    lowered = checked(VARIANTS[name], *operands(shared=2), dynamic=True)
    (reduction,) = (each for each in lowered.graph.operations if isinstance(each, Reduction))
    assert len(reduction.reduce_axes) == 1, "one block leaves nothing out, however long it is"
    gradients(VARIANTS[name], *operands(), dynamic=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_floats(dtype: torch.dtype) -> None:
    given = operands(shared=2, dtype=dtype)
    checked(VARIANTS["alibi"], *given, rounding=2e-2)
    gradients(VARIANTS["biased"], *given, rounding=6e-2)


def test_loop_graphs(golden: Callable[[str, str], None]) -> None:
    """Forward and backward with grouped heads, listed blocks and captured slopes."""
    blocks = create_block_mask(causal, None, None, 32, 64, device="cpu", BLOCK_SIZE=16).as_tuple()
    function = attention(VARIANTS["alibi"], blocks)
    given = [x.requires_grad_() for x in operands(shared=2, queries=32, keys=64, dtype=torch.bfloat16)]
    compiled, interpreted = captured(function, options=OPTIONS)
    compiled(*given, *mask_tensors(blocks), SLOPES)[0].sum().backward()
    forward, backward = (to_text(each.graph) for each in interpreted.lowered)
    golden("flex_attention_cases.txt", forward)
    golden("flex_attention_backward.txt", backward)


def captured_index(variant: Variant) -> tuple[Size, ...]:
    """Index at which the score function reads its first captured tensor."""
    lowered = checked(variant, *operands())
    (reduction,) = (each for each in lowered.graph.operations if isinstance(each, Reduction))
    inputs = [each.name for each in lowered.graph.inputs]
    return next(
        each.index for each in loads(*reduction.bodies) if each.buffer == inputs[-len(variant.score_captures)]
    )


def test_positions_are_index_terms() -> None:
    """An index in range is used directly; others are wrapped and checked as in eager."""
    h, m, n = symbol("i1"), symbol("i2"), symbol("r0")
    assert captured_index(VARIANTS["biased"]) == (h, m - n + KEYS)
    assert captured_index(Variant(bucketed, everything, (TABLE[:, :8],))) == (
        h,
        minimum(maximum(m - n, -3), 4) + 3,
    )
    head, position = captured_index(Variant(from_the_end, everything, (TABLE,)))
    assert head == h and isinstance(position, Indirect) and position.wrap and position.check == "raised"
    assert position.value == index(m - n)


@pytest.mark.parametrize("sizes", [(48, 64), (40, 56)], ids=["whole blocks", "a rest"])
@pytest.mark.parametrize("name", MASKS)
def test_sums_run_over_listed_blocks_only(name: str, sizes: tuple[int, int]) -> None:
    mask, batch, heads, how = MASKS[name]
    blocks = create_block_mask(mask, batch, heads, *sizes, device="cpu", BLOCK_SIZE=16).as_tuple()
    given = operands(queries=sizes[0], keys=sizes[1], **how)
    variant = Variant(capped, mask)
    lowered = checked(variant, *given, blocks=blocks)
    (reduction,) = (each for each in lowered.graph.operations if isinstance(each, Reduction))
    assert [axis.size for axis in reduction.reduce_axes] == [4, 16]
    gradients(variant, *given, blocks=blocks)


def test_unlisted_blocks_are_not_read() -> None:
    """Entries behind the listed ones are arbitrary."""
    blocks: list[Any] = list(
        create_block_mask(causal, None, None, 32, 64, device="cpu", BLOCK_SIZE=16).as_tuple()
    )
    beyond = torch.arange(4) >= blocks[2][..., None]
    blocks[3] = torch.where(beyond, 1 << 20, blocks[3]).to(torch.int32)
    checked(Variant(plain, causal), *operands(queries=32, keys=64), blocks=tuple(blocks))


@pytest.mark.parametrize("size", [8, (16, 64), 128])
def test_block_lists_without_omissions_or_of_small_blocks_are_ignored(size: Any) -> None:
    blocks = create_block_mask(causal, None, None, 32, 64, device="cpu", BLOCK_SIZE=size).as_tuple()
    lowered = checked(Variant(plain, causal), *operands(queries=32, keys=64), blocks=blocks)
    (reduction,) = (each for each in lowered.graph.operations if isinstance(each, Reduction))
    assert [axis.size for axis in reduction.reduce_axes] == [64]


def refusal_of(variant: Variant, *given: Tensor) -> str:
    """Reason for which an attention is not lowered to loops."""
    arguments = (*given, *mask_tensors(FULL_MASK), *variant.score_captures, *variant.mask_captures)
    lowered = lower(make_fx(attention(variant, FULL_MASK), tracing_mode="fake")(*arguments), options=OPTIONS)
    assert not any(
        isinstance(each, Reduction) and nested_reductions(*each.bodies) for each in lowered.graph.operations
    )
    (decision,) = (each for each in lowered.decisions if each.reason.key.startswith("flex_attention"))
    assert decision.verdict == "leave"
    return f"{decision.reason.key}: {decision.note}"


def test_functions_that_are_no_expression_of_a_point_are_refused() -> None:
    def spread(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, table: Tensor) -> Tensor:
        return score + table.sum()

    assert "flex_attention.function: the function runs aten.sum" in refusal_of(
        Variant(spread, causal, (TABLE,)), *operands()
    )
    assert "flex_attention.dtype" in refusal_of(VARIANTS["plain"], *operands(dtype=torch.float64))
