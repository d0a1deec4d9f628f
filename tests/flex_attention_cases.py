"""FlexAttention with functions for scores and masks, planned for a GPU: results of the plans, forward and backward."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._functorch.aot_autograd import aot_function
from torch.fx import GraphModule
from torch.nn.attention.flex_attention import create_block_mask

from litz_codegen_triton.capabilities import NVIDIA
from litz_codegen_triton.dtypes import SUPPORTED
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU
from litz_ir.host import Executor
from litz_ir.passes import PassContext
from litz_ir.plan import Plan
from litz_ir.target import Capabilities
from litz_lowering import LoweringOptions, decompositions, lower
from litz_scheduler import schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
import lowering_check

# The graphs are captured on the CPU, so a GPU's traits are given to that device.
MACHINE = Capabilities(
    "sm_90",
    CPU,
    replace(NVIDIA, sm_count=132, tensor_descriptors=True),
    atomics=SUPPORTED,
    max_tile_elements=32768,
    nested_reductions=True,
)
NESTED = LoweringOptions(nested_reductions=frozenset({"cpu"}), fallback="error")

Run = Callable[[Plan, Sequence[Any]], list[Any]]
"""Runs a plan on its inputs."""


def plain(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return score


def alibi(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, slope: Tensor) -> Tensor:
    return score + (n - m) * slope[h]


def capped(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return 2 * torch.tanh(score / 2)


def biased(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, table: Tensor) -> Tensor:
    return score + table[h, m - n + 64]


def of_keys(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, bias: Tensor) -> Tensor:
    return score + bias[h, n]


def of_points(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, bias: Tensor) -> Tensor:
    return score + bias[b, h, m, n]


def of_pairs(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, bias: Tensor) -> Tensor:
    return score + bias[m, n]


def paged(
    score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, pages: Tensor, of_page: Tensor
) -> Tensor:
    return score * of_page[pages[b, n // 16]]


def everything(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return b.new_ones((), dtype=torch.bool)


def causal(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return m >= n


def window(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (m >= n) & (m - n < 20)


def same_document(b: Tensor, h: Tensor, m: Tensor, n: Tensor, number: Tensor) -> Tensor:
    return (m >= n) & (number[m] == number[n])


def late(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return m > n + 16


def first(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return n - m < 300


@dataclass(frozen=True)
class Case:
    """Functions and what they look into, ``learned`` where its floats have gradients; sizes; how many kernels the
    forward and the backward have."""

    score: Callable[..., Tensor] = plain
    mask: Callable[..., Tensor] = everything
    captured: tuple[Tensor, ...] = ()
    seen: tuple[Tensor, ...] = ()
    heads: tuple[int, int] = (2, 2)
    batch: tuple[int, int] = (2, 2)
    lengths: tuple[int, int] = (48, 64)
    widths: tuple[int, int] = (16, 16)
    block: int = 0
    dtype: torch.dtype = torch.float32
    dynamic: bool = False
    learned: bool = False
    kernels: tuple[int, int] = (1, 3)

    def operands(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, the same in every process."""
        generator = torch.Generator().manual_seed(0)
        (heads, shared), (batch, of_keys), (queries, keys) = self.heads, self.batch, self.lengths
        shapes = (
            (batch, heads, queries, self.widths[0]),
            (of_keys, shared, keys, self.widths[0]),
            (of_keys, shared, keys, self.widths[1]),
        )
        q, k, v = (torch.randn(shape, generator=generator).to(self.dtype) for shape in shapes)
        return q, k, v

    def blocks(self) -> tuple[Any, ...]:
        """Return the tuple of a block mask: of real blocks, or of one that leaves nothing out."""

        def mask(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
            return self.mask(b, h, m, n, *self.seen) if self.block else everything(b, h, m, n)

        size = self.block or 1 << max(self.lengths).bit_length()
        return tuple(
            create_block_mask(mask, None, None, *self.lengths, device="cpu", BLOCK_SIZE=size).as_tuple()
        )


SLOPES, TABLE = torch.linspace(0.01, 0.04, 4), torch.linspace(-1, 1, 4 * 128).reshape(4, 128)
KEYS = torch.linspace(-1, 1, 4 * 64).reshape(4, 64)
POINTS = torch.linspace(-1, 1, 4 * 48 * 64).reshape(2, 2, 48, 64)
PAGES = (torch.arange(8) % 3).reshape(2, 4)
DOCUMENTS = torch.arange(64) // 13
CASES: Mapping[str, Case] = {
    "plain": Case(),
    "causal": Case(mask=causal),
    "causal_blocks": Case(mask=causal, block=16),
    "window_rest": Case(mask=window, block=16, lengths=(40, 56)),
    "nothing_seen": Case(mask=late, block=16),
    "alibi": Case(score=alibi, mask=causal, captured=(SLOPES,)),
    "capped": Case(score=capped),
    "biased": Case(score=biased, captured=(TABLE,)),
    "paged": Case(score=paged, captured=(PAGES, torch.tensor([0.5, 1.0, -1.0]))),
    "documents": Case(mask=same_document, seen=(DOCUMENTS,), block=16),
    "grouped": Case(mask=causal, heads=(4, 2), block=16),
    "grouped_alibi": Case(score=alibi, captured=(SLOPES,), heads=(4, 2)),
    "one_batch_of_keys": Case(score=capped, batch=(2, 1), heads=(4, 1)),
    "wide_values": Case(mask=causal, widths=(16, 32), kernels=(1, 4)),
    "bf16": Case(mask=causal, block=16, heads=(4, 2), dtype=torch.bfloat16),
    "bf16_documents": Case(
        mask=same_document, seen=(DOCUMENTS,), block=16, lengths=(48, 48), dtype=torch.bfloat16
    ),
    "bf16_window_rest": Case(mask=window, block=16, lengths=(40, 56), dtype=torch.bfloat16),
    "f16_alibi": Case(score=alibi, mask=causal, captured=(SLOPES,), dtype=torch.float16),
    "dynamic": Case(score=alibi, mask=causal, captured=(SLOPES,), lengths=(24, 40), dynamic=True),
    "learned_slopes": Case(score=alibi, mask=causal, captured=(SLOPES,), learned=True, kernels=(1, 6)),
    "learned_slopes_blocks": Case(
        score=alibi, mask=causal, captured=(SLOPES,), block=16, heads=(4, 2), learned=True, kernels=(1, 5)
    ),
    "learned_distances": Case(score=biased, mask=causal, captured=(TABLE,), learned=True, kernels=(1, 5)),
    "learned_distances_blocks": Case(
        score=biased, mask=window, captured=(TABLE,), block=16, lengths=(24, 40), heads=(4, 2), dtype=torch.bfloat16,
        learned=True, kernels=(1, 5),
    ),
    "learned_keys": Case(
        score=of_keys, mask=window, captured=(KEYS,), block=16, heads=(4, 2), learned=True, kernels=(1, 5)
    ),
    "learned_points": Case(score=of_points, mask=causal, captured=(POINTS,), learned=True, kernels=(1, 4)),
    "learned_points_blocks": Case(
        score=of_points, mask=causal, captured=(POINTS,), block=16, learned=True, kernels=(1, 5)
    ),
    "learned_pairs": Case(
        score=of_pairs, mask=causal, captured=(POINTS[0, 0],), heads=(4, 1), batch=(2, 1), learned=True, kernels=(1, 5)
    ),
    "learned_pairs_dynamic": Case(
        score=of_pairs, captured=(POINTS[0, 0],), lengths=(24, 40), dynamic=True, dtype=torch.float16, learned=True,
        kernels=(1, 5),
    ),
    "learned_pages": Case(
        score=paged, captured=(PAGES, torch.tensor([0.5, 1.0, -1.0])), learned=True, kernels=(1, 7)
    ),
    "decode": Case(lengths=(1, 2048), heads=(8, 2), batch=(1, 1), kernels=(2, 4)),
    "decode_odd": Case(mask=first, lengths=(2, 1021), heads=(8, 2), batch=(1, 1), kernels=(2, 3)),
    "decode_alone": Case(score=alibi, captured=(SLOPES,), lengths=(1, 1024), batch=(1, 1), kernels=(2, 4)),
}  # fmt: skip


def attention(case: Case, blocks: tuple[Any, ...]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Call the operator on queries, keys, values, the tensors of the block mask and those that the functions
    capture."""
    count = sum(isinstance(each, Tensor) for each in blocks)

    def function(q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
        given, looked_into = iter(others[:count]), others[count:]
        captured, seen = looked_into[: len(case.captured)], looked_into[len(case.captured) :]
        mask = [next(given) if isinstance(each, Tensor) else each for each in blocks[:-1]]
        out, lse, _ = torch.ops.higher_order.flex_attention(
            q, k, v, case.score, (*mask, case.mask), 0.25, {}, captured, seen
        )
        return out, lse

    return function


@dataclass
class Planned:
    """A compiler for AOTAutograd whose graphs are planned, and run by ``run``."""

    run: Run
    plans: list[Plan] = field(default_factory=list)

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        lowered = lower(gm, options=NESTED)
        plan = schedule_plan(schedule(lowered.graph, PassContext({CPU: MACHINE})), MACHINE)
        self.plans.append(plan)

        def run(args: list[Any]) -> list[Any]:
            given = [lowering_check.to_array(a) if isinstance(a, Tensor) else a for a in args]
            args.clear()
            return [lowering_check.to_tensor(each) for each in self.run(plan, given)]

        run._boxed_call = True  # type: ignore[attr-defined]  # torch's mark of a callable that takes a list
        return run


def differs(case: Case, run: Run) -> tuple[str, tuple[Plan, ...]]:
    """Describe the difference of the plans' results and gradients from eager, and return the plans."""
    blocks = case.blocks()
    function, planned = attention(case, blocks), Planned(run)
    others = (*(each for each in blocks if isinstance(each, Tensor)), *case.captured, *case.seen)
    compiled = aot_function(
        function,
        fw_compiler=planned,
        bw_compiler=planned,
        decompositions=decompositions(),
        dynamic=case.dynamic,
    )
    results = []
    for each in (compiled, function):
        own = [x.detach().clone().requires_grad_() for x in case.operands()]
        more = [x.detach().requires_grad_(case.learned and x.is_floating_point()) for x in others]
        out, lse = each(*own, *more)
        own += [x for x in more if x.requires_grad]
        # What hides a whole row leaves minus infinity, of which there is no gradient.
        loss = (out.float() * torch.linspace(-1, 1, out.shape[-1])).sum() + lse.clamp(min=-100).sum()
        results.append([out, lse, *torch.autograd.grad(loss, own)])
    narrow = 3e-2 if case.dtype != torch.float32 else 2e-4
    names = ("out", "lse", "dq", "dk", "dv", *("captured" for _ in results[0][5:]))
    for name, found, wanted in zip(names, *results, strict=True):
        if (found.shape, found.dtype, found.stride()) != (wanted.shape, wanted.dtype, wanted.stride()):
            return f"{name} is {found.dtype} of {found.shape}, {found.stride()}", tuple(planned.plans)
        most = float(wanted.detach()[wanted.isfinite()].abs().max())
        if not torch.allclose(found, wanted, rtol=narrow, atol=narrow * most, equal_nan=True):
            return f"{name} differs by {(found - wanted).abs().max()} of {most}", tuple(planned.plans)
    return "", tuple(planned.plans)


def reference(plan: Plan, inputs: Sequence[Any]) -> list[Any]:
    """Run a plan in the reference interpreter."""
    return Executor(plan).run(inputs)
