"""Indices that are reflected, clamped, wrapped or read from a tensor compute eager's values, whole registers or not."""

from __future__ import annotations

import pytest
import torch
from compared_with_eager import agrees, values
from torch.nn import functional as F

import litz

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int16, torch.uint8,
          torch.bool]  # fmt: skip

WIDTHS = (5, 48, 77)
"""Elements of a row: less than a register, whole registers, and registers with a rest."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_wrapped_rows_of_every_dtype(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.roll(3, -1), x.roll(-2, 0), x.flip(-1).roll(1, -1), x.roll((1, 2), (0, 1))

    for width in WIDTHS:
        agrees(program, values(3, width, dtype=dtype))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_padded_rows(mode: str, dynamic: bool) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        once = F.pad(x, (4, 3, 2, 1), mode=mode)
        return once, F.pad(once.relu(), (2, 2, 2, 2)), F.pad(once, (-1, 2, 1, 1), mode=mode)

    for width in WIDTHS:
        agrees(program, values(1, 2, 6, width), dynamic=dynamic)
    agrees(program, values(2, 3, 6, 40).to(memory_format=torch.channels_last), dynamic=dynamic)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_clamped_and_masked_indices(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        places = torch.arange(x.shape[1])
        near = x[:, (places - 2).clamp(0, x.shape[1] - 1)]
        return near, torch.where(at > 0, near.roll(1, 1), 0), x[:, (places * 3) % x.shape[1]] * 2

    for width in WIDTHS:
        agrees(program, values(3, width, dtype=dtype), values(3, width))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8], ids=str
)
def test_gathers_of_whole_and_part_registers(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, at: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.gather(1, at), torch.where(mask > 0, x.gather(1, at), 1), x[at[0], at[0]], x[:, at[0]]

    for width in WIDTHS:
        at = torch.randint(0, 3, (3, width), generator=torch.Generator().manual_seed(width))
        agrees(program, values(3, width, dtype=dtype), at, values(3, width))
        agrees(program, values(3, width, dtype=dtype), at, values(3, width) - 100)


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["scatter", "scatter_add", "index_add", "index_put"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_scatters_along_each_dimension(mode: str, dim: int) -> None:
    """Rows that no two points share run in parallel; points that write to one element stay in order."""

    def program(x: torch.Tensor, at: torch.Tensor, rows: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        if mode == "scatter":
            return x.scatter(dim, at, source)
        if mode == "scatter_add":
            return x.scatter_add(dim, at, source)
        part = source.narrow(dim, 0, rows.numel())
        if mode == "index_add":
            return x.index_add(dim, rows, part, alpha=2)
        index = tuple(slice(None) if k != dim else rows for k in range(3))
        return torch.ops.aten.index_put(x, [None if isinstance(e, slice) else e for e in index], part, True)

    for width in (5, 70):
        shape = (6, 5, width)
        generator = torch.Generator().manual_seed(width)
        at = torch.randint(0, shape[dim], shape, generator=generator)
        rows = torch.randint(0, shape[dim], (4,), generator=generator)
        source = torch.randint(-9, 9, shape, generator=generator).float()
        agrees(program, values(*shape), at, rows, source)


def test_rows_of_a_scatter_run_in_parallel() -> None:
    torch._dynamo.reset()
    x, at = values(64, 100), torch.randint(0, 100, (64, 30))
    report = litz.explain(lambda x, at, s: x.scatter_add(1, at, s), x, at, values(64, 30))
    scatter = report.graphs[0].kernels[-1].kernel
    assert [axis.size for axis in scatter.outer] == [64]
