"""Attention that a graph spells as matmuls and a softmax, planned for GPUs: results against a computation in f64.

Run as a program (``TRITON_INTERPRET=1 python composed_attention.py FOLDER``) it runs every plan with its kernels in
Triton's interpreter and prints a line of JSON for each case: its name, what differs (empty when nothing does), how many
kernels there are, those that run a nested reduction point by point, and the remaining calls.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from generated_attention import Planned, report
from torch import Tensor

from litz_codegen_triton.runtime.interpret import run_plan
from litz_scheduler import SchedulerOptions

DEFAULT = SchedulerOptions()
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
_NEAR = {BF16: 1.6e-2, F16: 3e-3, F32: 1e-2}
"""Relative tolerance of results, by the largest value: of two roundings; bf16 is multiplied exactly in f32."""

Composed = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """An attention as a function of queries, keys, values and further operands; its plan has so many ``kernels``."""

    function: Composed
    heads: tuple[int, ...] = (2, 2)
    lengths: tuple[int, int] = (32, 48)
    widths: tuple[int, int] = (16, 16)
    dtype: torch.dtype = BF16
    mask: tuple[int, ...] = ()
    hidden: int = 0
    merged: bool = True
    odd: float | None = None
    kernels: int = 1

    def operands(self) -> tuple[Tensor, ...]:
        """Return queries, keys, values and the mask, true where keys are seen, whose first rows see none.

        An ``odd`` number stands in one element each of a query, a key and a value, in different heads.
        """
        (queries, keys), (width, wide) = self.lengths, self.widths
        q, k, v = (
            self._laid_out(length, size) for length, size in ((queries, width), (keys, width), (keys, wide))
        )
        if self.odd is not None:
            q[0, 0, 1, 2] = k[0, 1, 3, 0] = v[1, 0, 5, 1] = self.odd
        if not self.mask:
            return q, k, v
        seen = _normal(*self.mask) > -1
        seen[..., : self.hidden, :] = False
        return q, k, v, seen

    def _laid_out(self, length: int, size: int) -> Tensor:
        if not self.merged:
            return _normal(*self.heads, length, size).to(self.dtype)
        batch, heads = self.heads
        return _normal(batch, length, heads, size).to(self.dtype).transpose(1, 2)


def _normal(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator)


# --- forms ---------------------------------------------------------------------------------------------


def math_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The form to which ATen decomposes ``scaled_dot_product_attention`` without a kernel for it."""
    return masked_math(q, k, v, None)


def masked_math(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
    """The same, with a mask that is true where keys are seen."""
    dtype, scale = q.dtype, q.shape[-1] ** -0.25
    q, k, v = (each if each.dtype == torch.float64 else each.float() for each in (q, k, v))
    scores = (q * scale) @ (k.transpose(-2, -1) * scale)
    if seen is not None:
        scores = scores + torch.where(seen, 0.0, -math.inf).to(scores.dtype)
    return (torch.ops.aten._safe_softmax.default(scores, -1) @ v).to(dtype)


def merged_math(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same, with its heads merged."""
    return math_attention(q, k, v).transpose(1, 2).flatten(2)


def hand_written(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in the dtype of its operands."""
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), -1) @ v


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A causal mask of a large negative number, softmax in f32, as autocast computes it."""
    scores = q @ k.transpose(-2, -1) * 0.3
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    scores = scores.masked_fill(~seen, -1e4)
    exact = scores if scores.dtype == torch.float64 else scores.float()
    return torch.softmax(exact, -1).to(v.dtype) @ v


def capped(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Scores capped by tanh, with a slope for each head and a mask."""
    scores = (20.0 * torch.tanh(q @ k.transpose(-2, -1) / 20.0)).to(
        torch.float64 if q.dtype == torch.float64 else torch.float32
    )
    slopes = torch.arange(1, q.shape[1] + 1, device=q.device)[:, None, None] * 0.1
    distance = torch.arange(k.shape[2], device=q.device) - torch.arange(q.shape[2], device=q.device)[:, None]
    scores = (scores + slopes * distance).masked_fill(~seen, -math.inf)
    return torch.softmax(scores, -1).to(v.dtype) @ v


def flat(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Batched matmuls of three dimensions."""
    return torch.softmax(torch.bmm(q, k.transpose(1, 2)), 2) @ v


def transformed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Queries and keys that are computed, which stay in memory."""
    return hand_written(torch.tanh(q), torch.tanh(k), v)


# --- near misses ---------------------------------------------------------------------------------------


def with_weights(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Attention whose weights are a result too."""
    weights = torch.softmax(q @ k.transpose(-2, -1), -1)
    return weights @ v, weights


def over_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A softmax over another dimension."""
    return torch.softmax(q @ k.transpose(-2, -1), -2) @ v


def squared(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Weights that are changed after the softmax."""
    return torch.softmax(q @ k.transpose(-2, -1), -1).square() @ v


def of_two(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scores of two matmuls."""
    return torch.softmax(q @ k.transpose(-2, -1) + k.sin() @ k.transpose(-2, -1), -1) @ v


CASES: Mapping[str, Case] = {
    "math": Case(math_attention),
    "math_merged": Case(merged_math),
    "math_f16": Case(math_attention, dtype=F16, lengths=(33, 50), widths=(24, 40)),
    "math_mask": Case(masked_math, mask=(2, 1, 32, 48), hidden=3),
    "math_mask_of_keys": Case(masked_math, mask=(2, 1, 1, 48), lengths=(40, 48)),
    "math_apart": Case(math_attention, merged=False),
    "hand_written": Case(hand_written, lengths=(64, 130)),
    "hand_written_f16": Case(hand_written, dtype=F16, widths=(72, 72)),
    "causal": Case(causal, lengths=(40, 40)),
    "capped": Case(capped, mask=(2, 2, 32, 48), lengths=(32, 48), kernels=2),
    "nan": Case(math_attention, odd=math.nan),
    "infinite": Case(math_attention, odd=math.inf),
    "infinite_by_hand": Case(hand_written, odd=-math.inf),
    "flat": Case(flat, heads=(3,), merged=False),
    "transformed": Case(transformed, kernels=3),
}
"""Attention that becomes one loop, by name."""

LEFT: Mapping[str, Case] = {
    "f32": Case(hand_written, dtype=F32),
    "weights": Case(with_weights),
    "over_queries": Case(over_queries, lengths=(48, 48)),
    "squared": Case(squared),
    "two": Case(of_two, lengths=(48, 48)),
    "few_keys": Case(hand_written, lengths=(32, 8)),
}
"""Graphs that only look like it, and stay matmuls."""


def differs(case: Case, planned: Planned) -> str:
    """Describe the difference of a plan's results from a computation in f64; empty where there is none."""
    operands = case.operands()
    found = planned(case.function, *operands)
    exact = case.function(*(each.double() if each.is_floating_point() else each for each in operands))
    shown = case.function(*operands)
    wanted, types = ((each,) if isinstance(each, Tensor) else each for each in (exact, shown))
    for own, value, type_ in zip(found, wanted, types, strict=True):
        if (own.shape, own.dtype, own.stride()) != (type_.shape, type_.dtype, type_.stride()):
            return f"{own.dtype} of {tuple(own.shape)}, {own.stride()}, eager's {tuple(type_.shape)}, {type_.stride()}"
        near = _NEAR[own.dtype]
        most = float(value[value.isfinite()].abs().max())
        if not torch.allclose(own.double(), value.double(), rtol=near, atol=near * most, equal_nan=True):
            return f"differs by {(own.double() - value).abs().max()}"
    return ""


def main(folder: Path, names: Sequence[str]) -> None:
    """Run every case, or the named ones."""
    for name in names or CASES:
        planned = Planned(lambda plan, inputs: run_plan(plan, inputs, folder), DEFAULT)
        try:
            difference = differs(CASES[name], planned)
        except Exception as error:
            difference = f"{type(error).__name__}: {error}"
        report(name, difference, planned.plans, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
