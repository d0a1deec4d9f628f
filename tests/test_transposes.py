"""Reads and writes that are contiguous along another axis than the lanes compute eager's values."""

from __future__ import annotations

import pytest
import torch
from compared_with_eager import agrees, values
from torch.nn import functional as F

import litz

pytestmark = pytest.mark.sampled  # it compiles whole programs

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16,
          torch.uint8, torch.bool]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transposed_reads_of_every_dtype(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.where(x.t() > y, x.t(), y), x.t().contiguous()

    for rows, columns in ((70, 90), (16, 33), (129, 64)):
        agrees(program, values(columns, rows, dtype=dtype), values(rows, columns, dtype=dtype))


@pytest.mark.parametrize("dynamic", [False, True])
def test_permutes_of_four_dimensions(dynamic: bool) -> None:
    x = values(3, 20, 9, 11)
    for order in ((0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 3, 2), (2, 3, 0, 1)):
        agrees(lambda x, order=order: (x.relu() * 2).permute(order).contiguous() + 1, x, dynamic=dynamic)
    agrees(lambda x: x.sin().to(memory_format=torch.channels_last), x, dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
def test_transposed_results_next_to_others(dynamic: bool) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + 1, (x * 2).t().contiguous(), x * y.t()

    agrees(program, values(65, 47), values(47, 65), dynamic=dynamic)
    agrees(program, values(130, 94)[::2, ::2], values(47, 80)[:, 3:68], dynamic=dynamic)


def test_a_tensor_plus_its_transpose_in_place() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.add_(y.t()) + x.t()

    mine, theirs = values(50, 50), values(50, 50)
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        found = torch.compile(program, backend="litz", fullgraph=True)(mine, mine.clone() * 2)
    torch.testing.assert_close(found, program(theirs, theirs.clone() * 2))
    torch.testing.assert_close(mine, theirs)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def rotated_norm(x: torch.Tensor, w: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return rotated(F.rms_norm(x, w.shape, w, 1e-6), cos, sin)


def rotated_heads(x: torch.Tensor, w: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    width = cos.shape[-1]
    return rotated(F.rms_norm(x, w.shape, w, 1e-6).unflatten(-1, (-1, width)).transpose(1, 2), cos, sin)


@pytest.mark.parametrize(("dtype", "dynamic"), [(torch.float32, True), (torch.bfloat16, False)])
def test_a_norm_and_a_rotary_embedding_are_one_kernel(dtype: torch.dtype, dynamic: bool) -> None:
    for width in (64, 22):
        cos, sin = values(9, width, dtype=dtype), values(9, width, dtype=dtype).neg()
        heads, weight = values(2, 9, 4, width, dtype=dtype).transpose(1, 2), values(width, dtype=dtype)
        agrees(rotated_norm, heads, weight, cos, sin, dynamic=dynamic)
        flat, weights = values(2, 9, 4 * width, dtype=dtype), values(4 * width, dtype=dtype)
        agrees(rotated_heads, flat, weights, cos, sin, dynamic=dynamic)
    report = litz.explain(rotated_heads, flat, weights, cos, sin)
    assert [len(graph.kernels) for graph in report.graphs] == [1]
