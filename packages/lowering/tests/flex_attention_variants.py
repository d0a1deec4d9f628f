"""Variants of FlexAttention and shapes of its operands, checked against eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lowering_check import check, check_gradients
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from litz_lowering import LoweredGraph, LoweringOptions

OPTIONS = LoweringOptions(nested_reductions=frozenset({"cpu"}), fallback="error")
QUERIES, KEYS = 12, 16

Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Variant:
    """Variant of FlexAttention: ``score_mod`` and ``mask_mod``, with the tensors that each captures."""

    score_mod: Function
    mask_mod: Function
    score_captures: tuple[Tensor, ...] = ()
    mask_captures: tuple[Tensor, ...] = ()


def plain(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return score


def everything(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return b.new_ones((), dtype=torch.bool)


def causal(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return m >= n


def same_document(b: Tensor, h: Tensor, m: Tensor, n: Tensor, number: Tensor) -> Tensor:
    return (m >= n) & (number[m] == number[n])


def second_half(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (m >= QUERIES // 2) & (n < m)


def alibi(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, slope: Tensor) -> Tensor:
    return score + (n - m) * slope[h]


def capped(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return 2 * torch.tanh(score / 2)


def biased(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, table: Tensor) -> Tensor:
    return score + table[h, m - n + KEYS]


def paged(
    score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, pages: Tensor, of_page: Tensor
) -> Tensor:
    return score * of_page[pages[b, n // 4]]


SLOPES, TABLE = torch.linspace(0.1, 0.4, 4), torch.linspace(-1, 1, 4 * 2 * KEYS).reshape(4, 2 * KEYS)
DOCUMENTS = torch.arange(KEYS) // 5
PAGES = (torch.arange(8) % 3).reshape(2, 4)
VARIANTS = {
    "plain": Variant(plain, everything),
    "causal": Variant(plain, causal),
    "nothing seen": Variant(plain, second_half),
    "documents": Variant(plain, same_document, (), (DOCUMENTS,)),
    "alibi": Variant(alibi, causal, (SLOPES,)),
    "capped": Variant(capped, everything),
    "biased": Variant(biased, causal, (TABLE,)),
    "paged": Variant(paged, everything, (PAGES, torch.tensor([0.5, 1.0, -1.0]))),
}


FULL_MASK = create_block_mask(lambda b, h, m, n: m == m, None, None, QUERIES, KEYS, device="cpu").as_tuple()


def mask_tensors(blocks: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Tensors of a block mask."""
    return tuple(each for each in blocks if isinstance(each, Tensor))


def operands(
    heads: int = 4, shared: int = 4, batch: int = 2, of_keys: int = 2, width: int = 8,
    dtype: torch.dtype = torch.float32, queries: int = QUERIES, keys: int = KEYS,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    shapes = ((batch, heads, queries, 8), (of_keys, shared, keys, 8), (of_keys, shared, keys, width))
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return q, k, v


def attention(variant: Variant, blocks: tuple[Any, ...]) -> Callable[..., Any]:
    """The operator as torch calls it, as a function of queries, keys, values, the tensors of a block mask and
    captured tensors."""
    count = len(mask_tensors(blocks))

    def function(q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        given, others = iter(others[:count]), others[count:]
        captured, seen = others[: len(variant.score_captures)], others[len(variant.score_captures) :]
        mask = [next(given) if isinstance(each, Tensor) else each for each in blocks[:-1]]
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.higher_order.flex_attention(
            q, k, v, variant.score_mod, (*mask, variant.mask_mod), 0.5, {}, captured, seen
        )
        return found

    return function


def checked(
    variant: Variant, *given: Tensor, blocks: tuple[Any, ...] = FULL_MASK, **how: Any
) -> LoweredGraph:
    others = (*mask_tensors(blocks), *variant.score_captures, *variant.mask_captures)
    return check(attention(variant, blocks), *given, *others, options=OPTIONS, **how)


def gradients(
    variant: Variant, *given: Tensor, blocks: tuple[Any, ...] = FULL_MASK, learned: bool = False, **how: Any
) -> None:
    """Check gradients, including those of captured tensors where ``learned``."""
    function, others = (
        attention(variant, blocks),
        (*mask_tensors(blocks), *variant.score_captures, *variant.mask_captures),
    )
    constants = 0 if learned else len(others)
    check_gradients(
        lambda *a: function(*a)[:2], *given, *others, constants=constants, options=OPTIONS, atol=1e-5, **how
    )


SHAPES = {
    "grouped": operands(shared=2),
    "one head of keys": operands(shared=1),
    "one batch of keys": operands(of_keys=1),
    "grouped, one batch of keys": operands(shared=2, of_keys=1),
    "wider values": operands(width=12),
    "heads last": tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in operands(shared=2)),
    "one query": (operands(shared=2)[0][:, :, :1], *operands(shared=2)[1:]),
}


def bucketed(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, table: Tensor) -> Tensor:
    return score + table[h, (m - n).clamp(-3, 4) + 3]


def from_the_end(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, table: Tensor) -> Tensor:
    return score + table[h, m - n]


def window(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (m >= n) & (m - n < 16)


def of_heads(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (m >= n) & (n >= 16 * h)


def of_batch(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (n + 16 * b >= m) | (m > 40)


MASKS: dict[str, tuple[Function, int | None, int | None, dict[str, Any]]] = {
    "causal": (causal, None, None, {}),
    "window": (window, None, None, {}),
    "heads": (of_heads, None, 4, {}),
    "batch": (of_batch, 2, None, {}),
    "batch and heads": (of_heads, 2, 4, {}),
    "grouped": (causal, None, None, {"shared": 2}),
    "grouped, of heads": (of_heads, None, 4, {"shared": 2}),
    "one batch of keys": (of_batch, 2, None, {"of_keys": 1}),
    "one batch of keys, grouped": (window, None, None, {"of_keys": 1, "shared": 1}),
}
