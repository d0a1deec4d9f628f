"""Twenty calls of FlexAttention in bf16 for a GPU: depths, grouped heads, masks, scores, decoding and pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

Index = Tensor
Scores = Callable[[Tensor, Index, Index, Index, Index], Tensor]
Mask = Callable[[Index, Index, Index, Index], Tensor]


def causal(b: Index, h: Index, q: Index, k: Index) -> Tensor:
    """Earlier keys and its own."""
    return q >= k


def window(b: Index, h: Index, q: Index, k: Index) -> Tensor:
    """The last 512 keys."""
    return (q >= k) & (q - k < 512)


def prefix(b: Index, h: Index, q: Index, k: Index) -> Tensor:
    """All keys of a prefix, and earlier ones."""
    return (k < 512) | (q >= k)


def documents(length: int, count: int) -> Mask:
    """Make a mask of documents of equal length in one row, causal in each."""
    number = torch.arange(length, device="cuda") // (length // count)
    return lambda b, h, q, k: (number[q] == number[k]) & (q >= k)


def capped(score: Tensor, b: Index, h: Index, q: Index, k: Index) -> Tensor:
    """Scores capped at 30."""
    return 30.0 * torch.tanh(score / 30.0)


def alibi(heads: int) -> Scores:
    """Make a bias that falls with the distance, by a slope for each head."""
    slopes = torch.exp2(-8.0 * torch.arange(1, heads + 1, device="cuda") / heads)
    return lambda score, b, h, q, k: score - slopes[h] * (q - k)


def paged(pages: int, size: int, batch: int) -> Mask:
    """Make a mask of a cache of pages in any order, of which each belongs to a row of the batch."""
    owner = torch.randperm(pages, device="cuda") % batch
    return lambda b, h, q, k: owner[k // size] == b


@dataclass(frozen=True)
class Attention:
    """The shape of one call."""

    batch: int
    heads: int
    queries: int
    depth: int
    keys: int = 0
    """As many as queries if zero."""
    shared: int = 1
    """Heads of queries that share keys and values."""
    pool: bool = False
    """True if all rows of the batch read one pool of keys."""
    scores: Callable[[], Scores] | None = None
    mask: Callable[[], Mask] | None = None

    def build(self) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
        """Return the call and its operands."""
        keys = self.keys or self.queries
        q = torch.randn(self.batch, self.heads, self.queries, self.depth, device="cuda", dtype=torch.bfloat16)
        shape = (1 if self.pool else self.batch, self.heads // self.shared, keys, self.depth)
        k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        mask = None
        if self.mask is not None:
            of_rows = self.batch if self.queries == 1 else None
            mask = create_block_mask(self.mask(), of_rows, None, self.queries, keys)
        scores = self.scores and self.scores()
        call = partial(flex_attention, score_mod=scores, block_mask=mask, enable_gqa=self.shared > 1)
        return lambda q, k, v: call(q, k, v), (q, k, v)


FLEX: dict[str, Attention] = {
    "all keys, depth 64": Attention(4, 16, 2048, 64),
    "all keys, depth 128": Attention(4, 16, 2048, 128),
    "causal, depth 64": Attention(4, 16, 4096, 64, mask=lambda: causal),
    "causal, depth 96": Attention(4, 16, 2048, 96, mask=lambda: causal),
    "causal, depth 128": Attention(2, 16, 4096, 128, mask=lambda: causal),
    "causal, depth 256": Attention(2, 8, 4096, 256, mask=lambda: causal),
    "causal, long": Attention(1, 8, 12288, 128, mask=lambda: causal),
    "causal, 4 heads share, depth 64": Attention(2, 32, 4096, 64, shared=4, mask=lambda: causal),
    "causal, 8 heads share, depth 128": Attention(2, 32, 4096, 128, shared=8, mask=lambda: causal),
    "window, depth 64": Attention(1, 16, 8192, 64, mask=lambda: window),
    "window, depth 128": Attention(1, 16, 8192, 128, mask=lambda: window),
    "window, 4 heads share": Attention(1, 16, 8192, 128, shared=4, mask=lambda: window),
    "prefix, depth 128": Attention(2, 16, 4096, 128, mask=lambda: prefix),
    "documents, depth 64": Attention(1, 16, 8192, 64, mask=partial(documents, 8192, 8)),
    "documents, depth 128": Attention(1, 16, 8192, 128, mask=partial(documents, 8192, 8)),
    "ALiBi, causal, depth 64": Attention(4, 16, 2048, 64, scores=partial(alibi, 16), mask=lambda: causal),
    "capped, causal, depth 128": Attention(2, 16, 4096, 128, scores=lambda: capped, mask=lambda: causal),
    "capped, depth 256, 2 heads share": Attention(2, 8, 2048, 256, shared=2, scores=lambda: capped),
    "one query, 8 heads share": Attention(8, 32, 1, 128, keys=16384, shared=8),
    "one query, pages": Attention(
        8, 32, 1, 128, keys=65536, shared=8, pool=True, mask=partial(paged, 512, 128, 8)
    ),
}
